// Comparison of a kernel's results with a reference. Include the header of `Array` first.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/calibrate/reference.h"
#include "tests/calibrate/values.h"
#include "tests/support/rooms.h"

namespace trainyard {

// Half the distance between neighbours of T, relative to the value: 2^-precision.
template <typename T>
double roundoff() {
  if (std::is_same_v<T, float>) return std::ldexp(1, -24);
  return std::is_same_v<T, __half> ? std::ldexp(1, -11) : std::ldexp(1, -8);
}

// The values as an array of T holds them.
template <typename T>
std::vector<double> rounded(const std::vector<double>& values) {
  return Array<T>(values).values();
}

template <typename T>
std::vector<double> inputs(std::size_t count, std::uint64_t seed) {
  return rounded<T>(seeded_values(count, seed));
}

// Equal but for one rounding of the result and `slack`, what arithmetic in fp32 may lose. NaN
// fails.
template <typename T>
void check_close(const std::vector<double>& result, const std::vector<double>& expected,
                 double slack) {
  REQUIRE(result.size() == expected.size());
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double allowed = roundoff<T>() * std::abs(expected[i]) * 1.01 + slack;
    if (std::abs(result[i] - expected[i]) <= allowed) continue;
    if (wrong++ == 0) first = i;
  }
  CAPTURE(first);
  CAPTURE(result[first]);
  CAPTURE(expected[first]);
  CHECK(wrong == 0);
}

}  // namespace trainyard
