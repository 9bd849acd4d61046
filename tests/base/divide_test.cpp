#include "sim/base/divide.h"

#include <doctest/doctest.h>

using namespace trainyard;

TEST_CASE("divisors ascend, each once, also of a square and of what has 40 bits") {
  CHECK(divisors(0).empty());
  CHECK(divisors(1) == std::vector<std::int64_t>{1});
  CHECK(divisors(36) == std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36});
  CHECK(divisors(std::int64_t{1} << 40).size() == 41);
  for (std::int64_t number = 1; number < 200; ++number) {
    std::vector<std::int64_t> plain;
    for (std::int64_t i = 1; i <= number; ++i)
      if (number % i == 0) plain.push_back(i);
    CHECK(divisors(number) == plain);
  }
}
