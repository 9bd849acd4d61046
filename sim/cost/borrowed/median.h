// The middle of some numbers.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/base/check.h"

namespace trainyard::cost {

// Of an even number of values the mean of the two in the middle. Requires: values not empty.
inline double median(std::vector<double> values) {
  TRAINYARD_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace trainyard::cost
