#include "calibrate/fit/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "sim/base/check.h"
#include "sim/base/random.h"

namespace trainyard::fit {
namespace {

constexpr double kScale = 0.1;          // f of the loss
constexpr double kStep = 1e-4;          // of the differences, in t
constexpr double kSmallestGain = 1e-8;  // relative; less ends the search
constexpr int kIterations = 100;
constexpr std::uint64_t kSeed = 0x7261696e79617264ULL;

double value_at(const Constant& c, double t) {
  const double s = (1 + std::sin(t)) / 2;
  const double value =
      c.logarithmic ? c.least * std::pow(c.most / c.least, s) : c.least + (c.most - c.least) * s;
  return std::clamp(value, c.least, c.most);
}

double parameter_of(const Constant& c, double value) {
  const double s = c.logarithmic ? std::log(value / c.least) / std::log(c.most / c.least)
                                 : (value - c.least) / (c.most - c.least);
  return std::asin(std::clamp(2 * s - 1, -1.0, 1.0));
}

// One search: the law with its samples, at parameters t.
class Search {
 public:
  Search(const Law& law, const std::vector<double>& measured,
         const std::vector<Constant>& constants)
      : law_(law), measured_(measured), constants_(constants) {}

  Solution from(std::vector<double> t) const;

 private:
  Constants values(const std::vector<double>& t) const {
    Constants all;
    for (std::size_t i = 0; i < t.size(); ++i)
      all.push_back(value_at(constants_[i], t[i]));
    return all;
  }
  std::vector<double> residuals(const std::vector<double>& t) const {
    std::vector<double> r = law_(values(t));
    TRAINYARD_CHECK(r.size() == measured_.size(), "{} predictions of {}", r.size(),
                    measured_.size());
    for (std::size_t i = 0; i < r.size(); ++i)
      r[i] = std::log(r[i] / measured_[i]);
    return r;
  }
  // Normal equations of the reweighted residuals: `a` is J^T W J, `b` is J^T W r.
  void linearise(const std::vector<double>& t, const std::vector<double>& r, std::vector<double>& a,
                 std::vector<double>& b) const;

  const Law& law_;
  const std::vector<double>& measured_;
  const std::vector<Constant>& constants_;
};

double cost_of(const std::vector<double>& residuals) {
  double sum = 0;
  for (const double r : residuals)
    sum += 2 * kScale * kScale * (std::sqrt(1 + r * r / (kScale * kScale)) - 1);
  return sum;
}

// Solves (a + damping diag(a)) x = b by Cholesky's method. False if it is not positive definite.
bool solve(std::vector<double> a, double damping, std::vector<double> b, std::vector<double>& x) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    a[i * n + i] += damping * a[i * n + i] + 1e-12;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k)
        sum -= a[i * n + k] * a[j * n + k];
      if (i == j && !(sum > 0)) return false;
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
    for (std::size_t k = 0; k < i; ++k)
      b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k)
      b[i] -= a[k * n + i] * b[k];
    b[i] /= a[i * n + i];
  }
  x = b;
  return true;
}

void Search::linearise(const std::vector<double>& t, const std::vector<double>& r,
                       std::vector<double>& a, std::vector<double>& b) const {
  const std::size_t n = t.size();
  std::vector<std::vector<double>> slopes;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> up = t, down = t;
    up[i] += kStep;
    down[i] -= kStep;
    std::vector<double> slope = residuals(up);
    const std::vector<double> low = residuals(down);
    for (std::size_t k = 0; k < slope.size(); ++k)
      slope[k] = (slope[k] - low[k]) / (2 * kStep);
    slopes.push_back(std::move(slope));
  }
  a.assign(n * n, 0);
  b.assign(n, 0);
  for (std::size_t k = 0; k < r.size(); ++k) {
    const double weight = 1 / std::sqrt(1 + r[k] * r[k] / (kScale * kScale));
    for (std::size_t i = 0; i < n; ++i) {
      b[i] += weight * slopes[i][k] * r[k];
      for (std::size_t j = 0; j < n; ++j)
        a[i * n + j] += weight * slopes[i][k] * slopes[j][k];
    }
  }
}

Solution Search::from(std::vector<double> t) const {
  std::vector<double> r = residuals(t);
  double cost = cost_of(r);
  double damping = 1e-3;
  for (int i = 0; i < kIterations && cost > 0; ++i) {
    std::vector<double> a, b, step;
    linearise(t, r, a, b);
    bool better = false;
    double gain = 0;
    for (; !better && damping < 1e9; damping *= better ? 1 : 4) {
      if (!solve(a, damping, b, step)) continue;
      std::vector<double> next = t;
      for (std::size_t k = 0; k < t.size(); ++k)
        next[k] -= std::clamp(step[k], -0.7, 0.7);  // sin t is no line further away
      std::vector<double> next_r = residuals(next);
      const double next_cost = cost_of(next_r);
      better = next_cost < cost;
      if (!better) continue;
      gain = cost - next_cost;
      t = std::move(next), r = std::move(next_r), cost = next_cost;
    }
    if (!better || gain < kSmallestGain * cost) break;
    damping = std::max(damping / 10, 1e-9);
  }
  return {values(t), cost};
}

}  // namespace

Solution least_squares(const Law& law, const std::vector<double>& measured,
                       const std::vector<Constant>& constants, int starts) {
  for (const Constant& c : constants)
    TRAINYARD_CHECK(c.least < c.most && (c.least > 0 || !c.logarithmic), "bounds {} to {}", c.least,
                    c.most);
  const Search search(law, measured, constants);
  SplitMix64 random(kSeed);
  Solution best;
  for (int i = 0; i < starts; ++i) {
    std::vector<double> t;
    for (const Constant& c : constants) {
      // The inner nine tenths of the range of s: at its ends sin t is flat.
      const double s = 0.05 + 0.9 * static_cast<double>(random.below(1 << 20)) / (1 << 20);
      t.push_back(i == 0 ? std::clamp(parameter_of(c, c.start), -1.3, 1.3) : std::asin(2 * s - 1));
    }
    const Solution end = search.from(std::move(t));
    if (i == 0 || end.cost < best.cost * (1 - 1e-9)) best = end;
  }
  return best;
}

}  // namespace trainyard::fit
