#include "calibrate/fit/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace trainyard::fit {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double scaled_mad(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values)
    distances.push_back(std::abs(value - middle));
  return 1.4826 * median(std::move(distances));
}

Errors errors_of(const std::vector<double>& relative) {
  Errors errors;
  std::vector<double> sizes;
  for (const double r : relative) {
    sizes.push_back(100 * std::abs(r));
    errors.mape += sizes.back();
  }
  errors.count = static_cast<int>(sizes.size());
  if (sizes.empty()) return errors;
  errors.mape /= static_cast<double>(sizes.size());
  errors.worst = *std::max_element(sizes.begin(), sizes.end());
  errors.median = median(std::move(sizes));
  return errors;
}

double six_digits(double value) {
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

}  // namespace trainyard::fit
