#include "sim/base/units.h"

#include <doctest/doctest.h>

#include <limits>

#include "sim/base/out_of_range.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

TEST_CASE("a real number becomes simulated time with one rounding to the nearest picosecond") {
  CHECK(to_duration(Seconds(1.5e-12)) == Duration(2));
  CHECK(to_duration(Seconds(0)) == Duration(0));
  CHECK(to_duration(4_MiB / 450_GBps) == Duration(9'320'676));
}

TEST_CASE("sums and products of counts that 64 bits do not hold are refused") {
  const Bytes most(std::numeric_limits<std::int64_t>::max());
  CHECK_THROWS_AS(most + Bytes(1), OutOfRange);
  CHECK_THROWS_AS(2 * most, OutOfRange);
  CHECK(most + Bytes(0) == most);
  CHECK_THROWS_AS(later(kEndOfTime - Duration(1), Duration(1)), OutOfRange);
  CHECK(later(kEndOfTime - Duration(2), Duration(1)) == kEndOfTime - Duration(1));
  CHECK_THROWS_AS(to_duration(Seconds(5e6)), OutOfRange);
  CHECK_THROWS_AS(to_duration(Seconds(-1)), OutOfRange);
}
