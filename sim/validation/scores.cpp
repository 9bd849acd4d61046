#include "sim/validation/scores.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <tuple>

namespace trainyard::validation {
namespace {

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]])
      ++last;
    for (std::size_t i = first; i <= last; ++i)
      out[order[i]] = static_cast<double>(first + last) / 2;
    first = last + 1;
  }
  return out;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double error_of(const Pair& pair) {
  return pair.predicted / pair.measured - 1;
}

std::optional<ErrorScore> score_errors(std::span<const Pair> pairs) {
  if (pairs.empty()) return std::nullopt;
  std::vector<double> errors, sizes;
  for (const Pair& pair : pairs) {
    errors.push_back(error_of(pair));
    sizes.push_back(std::abs(errors.back()));
  }
  std::sort(sizes.begin(), sizes.end());
  const std::size_t count = sizes.size();
  ErrorScore score;
  score.count = count;
  score.mape = mean(sizes);
  score.median = (sizes[(count - 1) / 2] + sizes[count / 2]) / 2;
  score.p90 = sizes[(9 * count + 9) / 10 - 1];
  score.most = sizes.back();
  score.bias = mean(errors);
  return score;
}

std::optional<ErrorScore> score_sources(std::span<const ErrorScore> scores,
                                        std::size_t most_of_source) {
  ErrorScore of_all;
  double weights = 0;
  for (const ErrorScore& score : scores) {
    const double weight = static_cast<double>(std::min(score.count, most_of_source));
    weights += weight;
    of_all.count += score.count;
    of_all.most = std::max(of_all.most, score.most);
    for (double ErrorScore::*part :
         {&ErrorScore::mape, &ErrorScore::median, &ErrorScore::p90, &ErrorScore::bias})
      of_all.*part += weight * score.*part;
  }
  if (weights == 0) return std::nullopt;
  for (double ErrorScore::*part :
       {&ErrorScore::mape, &ErrorScore::median, &ErrorScore::p90, &ErrorScore::bias})
    of_all.*part /= weights;
  return of_all;
}

std::optional<double> rank_correlation(std::span<const Pair> pairs) {
  if (pairs.size() < 3) return std::nullopt;
  std::vector<double> predicted, measured;
  for (const Pair& pair : pairs) {
    predicted.push_back(pair.predicted);
    measured.push_back(pair.measured);
  }
  const std::vector<double> a = ranks(predicted), b = ranks(measured);
  const double middle = static_cast<double>(pairs.size() - 1) / 2;
  double together = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    together += (a[i] - middle) * (b[i] - middle);
    of_a += (a[i] - middle) * (a[i] - middle);
    of_b += (b[i] - middle) * (b[i] - middle);
  }
  if (of_a == 0 || of_b == 0) return std::nullopt;
  return together / std::sqrt(of_a * of_b);
}

std::optional<Regret> pick_regret(std::span<const std::vector<Alternative>> choices) {
  Regret regret;
  for (const std::vector<Alternative>& alternatives : choices) {
    if (alternatives.size() < 2) continue;
    const auto first = [&](const auto& key) {
      return std::min_element(
                 alternatives.begin(), alternatives.end(),
                 [&](const Alternative& a, const Alternative& b) { return key(a) < key(b); })
          ->time.measured;
    };
    const double pick = first([](const Alternative& a) {
      return std::tuple(!a.said.fits, a.said.is_tight, a.time.predicted);
    });
    const double slower = pick / first([](const Alternative& a) { return a.time.measured; }) - 1;
    ++regret.choices;
    regret.mean += slower;
    regret.most = std::max(regret.most, slower);
  }
  if (regret.choices == 0) return std::nullopt;
  regret.mean /= static_cast<double>(regret.choices);
  return regret;
}

void Verdicts::add(const SaidToFit& said, bool measured_fits) {
  if (measured_fits)
    ++(said.fits ? ran : false_alarms);
  else
    ++(said.fits ? missed : foreseen);
  if (said.fits && said.is_tight) ++(measured_fits ? tight_ran : tight_missed);
}

std::optional<double> Verdicts::balanced_accuracy() const {
  const std::size_t out = foreseen + missed, in = ran + false_alarms;
  if (out == 0 || in == 0) return std::nullopt;
  return (static_cast<double>(foreseen) / static_cast<double>(out) +
          static_cast<double>(ran) / static_cast<double>(in)) /
         2;
}

}  // namespace trainyard::validation
