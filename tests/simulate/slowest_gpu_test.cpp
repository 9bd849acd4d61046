#include "sim/simulate/slowest_gpu.h"

#include <doctest/doctest.h>

#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("the expected largest of n normal numbers, against closed forms") {
  CHECK(expected_largest(1) == 0);
  CHECK(expected_largest(2) == about(0.56419).within(1e-4));  // 1 / sqrt(pi)
  CHECK(expected_largest(3) == about(0.84628).within(0.07));  // 3 / (2 sqrt(pi))
  CHECK(expected_largest(1000) == about(3.2414).within(2e-3));
  for (int n = 1; n < 300; ++n)
    CHECK(expected_largest(n) < expected_largest(n + 1));
}
