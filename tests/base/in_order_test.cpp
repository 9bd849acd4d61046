#include "sim/base/threads/in_order.h"

#include <doctest/doctest.h>

#include <numeric>
#include <stdexcept>

using namespace trainyard;

TEST_CASE("Results stand in the order of the work, for any number of threads") {
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  for (const int jobs : {0, 1, 2, 7, 200})
    CHECK(in_order<int>(100, jobs, [](std::size_t i) { return static_cast<int>(i); }) == expected);
}

TEST_CASE("No work gives no results") {
  CHECK(in_order<int>(0, 4, [](std::size_t) { return 1; }).empty());
}

TEST_CASE("The error of the first failing piece is thrown, for any number of threads") {
  for (const int jobs : {1, 2, 8}) {
    const auto work = [](std::size_t i) -> int {
      if (i % 3 == 2) throw std::runtime_error("piece " + std::to_string(i));
      return 0;
    };
    CHECK_THROWS_WITH(in_order<int>(20, jobs, work), "piece 2");
  }
}
