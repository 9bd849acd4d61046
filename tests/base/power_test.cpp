#include "sim/base/power.h"

#include <doctest/doctest.h>

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
