#include "sim/base/power.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "sim/base/random.h"

using trainyard::power;

TEST_CASE("a power agrees with long double libm to 1e-14") {
  trainyard::SplitMix64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const double base = std::ldexp(1 + static_cast<double>(random.below(1 << 30)) / (1 << 30),
                                   static_cast<int>(random.below(40)) - 20);
    const double exponent = static_cast<double>(random.below(1'600'001)) / 1e5 - 8;
    const long double exact = std::pow(static_cast<long double>(base), exponent);
    CHECK(std::abs(static_cast<double>((power(base, exponent) - exact) / exact)) < 1e-14);
  }
}

TEST_CASE("powers that are exact come out exact") {
  CHECK(power(1, 7.5) == 1);
  CHECK(power(2, 10) == 1024);
  CHECK(power(3, 0) == 1);
  CHECK(power(7.25, 1) == 7.25);
}

TEST_CASE("a binary logarithm is exact for powers of two and agrees with libm otherwise") {
  for (int e = -60; e <= 62; ++e)
    CHECK(trainyard::binary_log(std::ldexp(1.0, e)) == e);
  double last = -1;
  for (int i = 1; i < 20000; ++i) {
    const double x = 1 + 0.37 * i;
    const double log = trainyard::binary_log(x);
    REQUIRE(std::abs(log - std::log2(x)) <= 1e-15 * std::max(1.0, log) + 1e-15);
    REQUIRE(log > last);
    last = log;
  }
}
