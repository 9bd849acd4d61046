#include "sim/base/units.h"

#include <doctest/doctest.h>

#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

TEST_CASE("a real number becomes simulated time with one rounding to the nearest picosecond") {
  CHECK(to_duration(Seconds(1.5e-12)) == Duration(2));
  CHECK(to_duration(Seconds(0)) == Duration(0));
  CHECK(to_duration(4_MiB / 450_GBps) == Duration(9'320'676));
}
