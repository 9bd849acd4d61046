#include "sim/collective/share.h"

#include <doctest/doctest.h>

#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

TEST_CASE("shares are kept in lowest terms") {
  CHECK(Share(6, 8) == Share(3, 4));
  CHECK(Share(0, 7) == Share());
  CHECK(Share(1, 6) + Share(1, 3) == Share(1, 2));
}

TEST_CASE("a share of a buffer is rounded up to whole bytes, without overflow") {
  CHECK(Share(7, 4).of(64_MiB) == 112_MiB);
  CHECK(Share(1, 3).of(Bytes(10)) == Bytes(4));
  CHECK(Share(14, 8).of(Bytes(std::int64_t{1} << 62)) == Bytes(7 * (std::int64_t{1} << 60)));
  CHECK(Share(2 * 131'071LL, 131'072).of(Bytes(std::int64_t{1} << 50)) ==
        Bytes((std::int64_t{1} << 51) - (std::int64_t{1} << 34)));
}

// The table of nccl-tests, doc/PERFORMANCE.md.
TEST_CASE("busbw is algbw times the factor of nccl-tests") {
  CHECK(bus_factor(CollectiveKind::all_reduce, 8) == 1.75);
  CHECK(bus_factor(CollectiveKind::all_reduce, 2) == 1.0);
  CHECK(bus_factor(CollectiveKind::all_gather, 8) == 0.875);
  CHECK(bus_factor(CollectiveKind::reduce_scatter, 4) == 0.75);
  CHECK(bus_factor(CollectiveKind::all_to_all, 2) == 0.5);
  CHECK(bus_factor(CollectiveKind::broadcast, 8) == 1.0);
}

TEST_CASE("a group of one moves nothing") {
  for (CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
        CollectiveKind::broadcast, CollectiveKind::all_to_all})
    CHECK(wire_share(kind, 1) == Share());
}
