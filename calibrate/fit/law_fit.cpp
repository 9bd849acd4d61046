#include "calibrate/fit/law_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/fit/statistics.h"
#include "sim/base/check.h"

namespace trainyard::fit {
namespace {

// Start-up times are searched between these; what ends within a fifth of the lower one is nothing.
constexpr double kNoTime = 1e-9;
constexpr double kMostStartUp = 0.1;

Constants fit_on(const LawTask& task, const std::vector<std::size_t>& which, int starts = 4) {
  std::vector<double> measured;
  for (const std::size_t i : which)
    measured.push_back(task.samples[i]->time_us * 1e-6);
  const auto law = [&](const Constants& values) { return task.predict(values, which); };
  return least_squares(law, measured, task.constants, starts).values;
}

// Indices (into `which`) of the outliers under these constants.
std::vector<std::size_t> outliers(const LawTask& task, const Constants& values,
                                  const std::vector<std::size_t>& which) {
  std::vector<double> residuals = task.predict(values, which);
  for (std::size_t i = 0; i < which.size(); ++i)
    residuals[i] = std::log(residuals[i] / (task.samples[which[i]]->time_us * 1e-6));
  const double middle = median(residuals);
  const double most = std::max(kOutlierMads * scaled_mad(residuals), kLeastOutlier);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < which.size(); ++i)
    if (std::abs(residuals[i] - middle) > most) found.push_back(i);
  return found;
}

void reject_spread(const LawTask& task, LawFit& fit) {
  for (std::size_t i = 0; i < task.samples.size(); ++i) {
    if (task.samples[i]->spread <= kMostSpread) continue;
    fit.fates[i] = SampleFate::rejected;
    fit.reasons[i] = fmt::format("repeats spread by {:.0f} %", 100 * task.samples[i]->spread);
  }
  if (!fit.with(SampleFate::fitted).empty()) return;
  // A machine this noisy has nothing better.
  std::fill(fit.fates.begin(), fit.fates.end(), SampleFate::fitted);
  std::fill(fit.reasons.begin(), fit.reasons.end(), "");
}

void deal(const LawTask& task, LawFit& fit) {
  const std::vector<std::size_t> kept = fit.with(SampleFate::fitted);
  std::vector<Coordinates> places;
  for (const std::size_t i : kept)
    places.push_back(task.places[i]);
  const Split dealt = split(places, task.distance, task.held_out, task.fewest);
  fit.split = dealt;
  fit.split.held_out.assign(task.samples.size(), false);
  fit.split.cluster.assign(task.samples.size(), -1);
  for (std::size_t k = 0; k < kept.size(); ++k) {
    fit.split.cluster[kept[k]] = dealt.cluster[k];
    fit.split.held_out[kept[k]] = dealt.held_out[k];
    if (dealt.held_out[k]) fit.fates[kept[k]] = SampleFate::held_out;
  }
  if (task.inner.empty()) return;
  const std::vector<std::size_t> fitted = fit.with(SampleFate::fitted);
  std::vector<Coordinates> own;
  std::vector<double> inner;
  for (const std::size_t i : fitted) {
    own.push_back(task.places[i]);
    inner.push_back(task.inner[i]);
  }
  const std::vector<bool> held = split_inside(own, inner, task.distance);
  for (std::size_t k = 0; k < fitted.size(); ++k)
    if (held[k]) fit.fates[fitted[k]] = SampleFate::held_out_size;
}

void reject_outliers(const LawTask& task, LawFit& fit) {
  const std::vector<std::size_t> which = fit.with(SampleFate::fitted);
  const std::vector<std::size_t> found = outliers(task, fit.values, which);
  if (found.empty()) return;
  if (static_cast<double>(found.size()) > kMostOutliers * static_cast<double>(which.size())) {
    fit.refused_outliers = true;
    return;
  }
  for (const std::size_t i : found) {
    fit.fates[which[i]] = SampleFate::rejected;
    fit.reasons[which[i]] = "outlier";
  }
  fit.values = fit_on(task, fit.with(SampleFate::fitted));
}

}  // namespace

std::vector<std::size_t> LawFit::with(SampleFate fate) const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < fates.size(); ++i)
    if (fates[i] == fate) indices.push_back(i);
  return indices;
}

LawFit fit_law(const LawTask& task) {
  TRAINYARD_CHECK(!task.samples.empty() && task.samples.size() == task.places.size(),
                  "{} samples at {} places", task.samples.size(), task.places.size());
  LawFit fit;
  fit.fates.assign(task.samples.size(), SampleFate::fitted);
  fit.reasons.resize(task.samples.size());
  reject_spread(task, fit);
  deal(task, fit);
  fit.values = fit_on(task, fit.with(SampleFate::fitted));
  reject_outliers(task, fit);
  for (std::size_t i = 0; i < fit.values.size(); ++i) {
    const bool nothing = task.constants[i].least == kNoTime && fit.values[i] < 1.2 * kNoTime;
    fit.values[i] = nothing ? 0 : six_digits(fit.values[i]);
  }
  return fit;
}

double left_out_error(const LawTask& task, const LawFit& fit) {
  constexpr int kFolds = 4;
  double sum = 0;
  std::size_t count = 0;
  for (int fold = 0; fold < kFolds; ++fold) {
    std::vector<std::size_t> inside, outside;
    for (const std::size_t i : fit.with(SampleFate::fitted))
      (fit.split.cluster[i] % kFolds == fold ? outside : inside).push_back(i);
    if (inside.empty()) continue;
    const std::vector<double> seconds = task.predict(fit_on(task, inside, 1), outside);
    for (std::size_t i = 0; i < outside.size(); ++i)
      sum += std::abs(seconds[i] / (task.samples[outside[i]]->time_us * 1e-6) - 1);
    count += outside.size();
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

Constant logarithmic(double least, double most, double start) {
  return {least, most, std::clamp(start, least * 1.01, most / 1.01), true};
}

Constant start_up(double guess) {
  return logarithmic(kNoTime, kMostStartUp, guess);
}

}  // namespace trainyard::fit
