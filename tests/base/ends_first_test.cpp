#include "sim/base/ends_first.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace trainyard;

TEST_CASE("both ends of a row come first, then middles, each place once") {
  CHECK(ends_first(0).empty());
  CHECK(ends_first(1) == std::vector<std::size_t>{0});
  CHECK(ends_first(8) == std::vector<std::size_t>{0, 7, 3, 1, 5, 2, 4, 6});
  for (std::size_t count = 2; count < 40; ++count) {
    std::vector<std::size_t> order = ends_first(count);
    CHECK(order[1] == count - 1);
    std::sort(order.begin(), order.end());
    REQUIRE(order.size() == count);
    for (std::size_t i = 0; i < count; ++i)
      CHECK(order[i] == i);
  }
}
