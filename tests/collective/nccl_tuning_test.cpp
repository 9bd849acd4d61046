// NCCL's choices, against what its logs and nccl-tests show and against arithmetic by hand.
#include "sim/collective/nccl_tuning.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using nccl::Generation;
using nccl::Joined;
using nccl::Machine;
using nccl::Method;
using nccl::Protocol;

namespace {

constexpr CollectiveKind kAllReduce = CollectiveKind::all_reduce;

Bytes mebibytes(std::int64_t count) {
  return Bytes(count << 20);
}

BytesPerSecond gigabytes(double count) {
  return BytesPerSecond(count * 1e9);
}

Joined a100(int ranks, int servers = 1) {
  return {.group = {ranks, ranks / servers, servers},
          .machine = {.generation = Generation::ampere, .channels = 24},
          .inside = gigabytes(240),
          .between = servers > 1 ? gigabytes(192) : BytesPerSecond()};
}

Joined switched(Generation generation, int ranks, double line, int servers = 1) {
  return {.group = {ranks, ranks / servers, servers},
          .machine = {.generation = generation, .reducing_switch = true, .channels = 24},
          .inside = gigabytes(line),
          .between = servers > 1 ? gigabytes(384) : BytesPerSecond()};
}

nccl::Choice first(CollectiveKind kind, Bytes bytes, const Joined& joined) {
  return nccl::choices(kind, bytes, joined).front();
}

const nccl::Choice& of(const std::vector<nccl::Choice>& list, Method method, Protocol protocol) {
  for (const nccl::Choice& choice : list)
    if (choice.method == method && choice.protocol == protocol) return choice;
  FAIL("no such choice");
  return list.front();
}

}  // namespace

// 64 MiB over 8 ranks: 8.4 + 14 x 3.4 us, then 67.1 MB at 240 x 8/14 = 137.14 GB/s.
TEST_CASE("expected times are those of the tuning's formulas") {
  const auto list = nccl::choices(kAllReduce, mebibytes(64), a100(8));
  CHECK(microseconds(of(list, Method::ring, Protocol::simple).expected) ==
        about(8.4 + 14 * 3.4 + 67108.864 / 137.142857));
  // LL: half of the line, held to 87.7 GB/s of all channels.
  CHECK(microseconds(of(list, Method::ring, Protocol::ll).expected) ==
        about(6.6 + 14 * .6 + 67108.864 / (87.7 * 8 / 14)));
  // A tree: .92 of the line, half of it the buffer's; 64 MiB is line 20 of its table, .8 of it.
  CHECK(microseconds(of(list, Method::tree, Protocol::simple).expected) ==
        about(8.4 + 14 * 4 + 67108.864 / (.92 * 240 / 2 * .8)));
}

// nccl-tests on two DGX A100: 2 (n-1)/n S/B above 64 MiB, not the S/B of a tree.
TEST_CASE("two A100 servers take the ring for large all-reduces and a tree for small ones") {
  for (const std::int64_t size : {64, 256, 1024, 8192}) {
    const nccl::Choice choice = first(kAllReduce, mebibytes(size), a100(16, 2));
    CHECK(choice.method == Method::ring);
    CHECK(choice.channels == 24);
  }
  CHECK(first(kAllReduce, mebibytes(1024), a100(16, 2)).protocol == Protocol::simple);
  CHECK(first(kAllReduce, Bytes(1024), a100(16, 2)).method == Method::tree);
  CHECK(first(kAllReduce, Bytes(1024), a100(16, 2)).protocol == Protocol::ll);
}

TEST_CASE("many servers take trees up to sizes that grow with their number") {
  const auto until = [](int servers) {
    std::int64_t size = 1;
    while (size < 1 << 20 &&
           first(kAllReduce, mebibytes(size), a100(8 * servers, servers)).method == Method::tree)
      size *= 2;
    return size;
  };
  CHECK(until(4) < until(64));
  CHECK(until(64) <= until(512));
}

// nccl-tests on H200: reductions in the switch from 2 MiB on, of five GPUs or more.
TEST_CASE("Hopper's switches reduce large all-reduces of more than four GPUs") {
  for (const int ranks : {2, 3, 4})
    CHECK(first(kAllReduce, mebibytes(1024), switched(Generation::hopper, ranks, 370)).method ==
          Method::ring);
  for (const int ranks : {5, 6, 7, 8}) {
    const Joined joined = switched(Generation::hopper, ranks, 370);
    CHECK(first(kAllReduce, mebibytes(1024), joined).method == Method::nvls);
    CHECK(first(kAllReduce, mebibytes(2), joined).method == Method::nvls);
    CHECK(first(kAllReduce, Bytes(65536), joined).method == Method::ring);
    CHECK(first(CollectiveKind::all_gather, mebibytes(1024), joined).method == Method::ring);
  }
  CHECK(first(kAllReduce, mebibytes(1024), switched(Generation::blackwell, 8, 722)).method ==
        Method::nvls);
  CHECK(first(kAllReduce, mebibytes(1024), switched(Generation::ampere, 8, 370)).method ==
        Method::ring);
  CHECK(first(kAllReduce, mebibytes(1024), switched(Generation::hopper, 16, 370, 2)).method ==
        Method::nvls_tree);
}

// 8 heads of 40 GB/s: 8 x 40 x .85 x 7/8 x 2 = 476 GB/s of bus; H200s reach 473 to 482.
TEST_CASE("what a reducing switch is expected to reach is near what it does") {
  const auto list =
      nccl::choices(kAllReduce, mebibytes(8192), switched(Generation::hopper, 8, 370));
  const double seconds = of(list, Method::nvls, Protocol::simple).expected.count() - 25e-6;
  CHECK(8192 * 1048576.0 / seconds * 14 / 8 * 1e-9 == about(476));
}

TEST_CASE("lines with flags win where buffers are small, plain ones where they are large") {
  for (const auto kind : {kAllReduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                          CollectiveKind::broadcast}) {
    CAPTURE(name(kind));
    for (const int servers : {1, 2, 8}) {
      const Joined joined = a100(8 * servers, servers);
      CHECK(first(kind, Bytes(64), joined).protocol == Protocol::ll);
      CHECK(first(kind, mebibytes(65536), joined).protocol == Protocol::simple);
      nccl::Choice last = first(kind, Bytes(64), joined);
      for (std::int64_t bytes = 128; bytes < std::int64_t{1} << 36; bytes *= 2) {
        const nccl::Choice now = first(kind, Bytes(bytes), joined);
        CHECK((now.channels >= 1 && now.channels <= 24));
        if (now.method == last.method && now.protocol == last.protocol)
          CHECK(now.channels >= last.channels);
        last = now;
      }
    }
  }
}

TEST_CASE("LL128 needs NVLink; slow rings launch fewer threads, so more channels") {
  Joined joined = a100(8);
  joined.machine = {.generation = Generation::ampere, .nvlink = false, .channels = 4};
  joined.inside = gigabytes(24);
  for (const nccl::Choice& choice : nccl::choices(kAllReduce, mebibytes(16), joined))
    CHECK(choice.protocol != Protocol::ll128);
  // 4 channels x 256 threads x 64 B = 64 KiB.
  const auto channels = [&joined](std::int64_t bytes) {
    return of(nccl::choices(CollectiveKind::all_gather, Bytes(bytes), joined), Method::ring,
              Protocol::simple)
        .channels;
  };
  CHECK(channels(65536) == 4);
  CHECK(channels(65535) == 3);
  CHECK(channels(0) == 1);
}

TEST_CASE(
    "sends and receives have no choice, broadcasts a ring alone, single ranks a server's PAT") {
  CHECK(nccl::choices(CollectiveKind::all_to_all, mebibytes(1), a100(8)).empty());
  CHECK(nccl::choices(CollectiveKind::shift, mebibytes(1), a100(8)).empty());
  for (const nccl::Choice& choice : nccl::choices(CollectiveKind::broadcast, mebibytes(1), a100(8)))
    CHECK(choice.method == Method::ring);
  Joined spread = a100(64, 64);
  spread.inside = BytesPerSecond();
  spread.between = gigabytes(24);
  CHECK(first(CollectiveKind::all_gather, mebibytes(1), spread).method == Method::pat);
  CHECK(first(CollectiveKind::all_gather, mebibytes(8192), spread).method == Method::ring);
}

TEST_CASE("generations are those of compute capabilities") {
  CHECK(nccl::generation_of("7.0") == Generation::volta);
  CHECK(nccl::generation_of("6.0") == Generation::volta);
  CHECK(nccl::generation_of("8.9") == Generation::ampere);
  CHECK(nccl::generation_of("9.0") == Generation::hopper);
  CHECK(nccl::generation_of("10.0") == Generation::blackwell);
  CHECK(nccl::generation_of("12.0") == Generation::blackwell);
  CHECK(!nccl::generation_of("").has_value());
  CHECK(!nccl::generation_of("gfx942").has_value());
}
