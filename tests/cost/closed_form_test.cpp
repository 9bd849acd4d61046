#include "sim/cost/closed_form.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "sim/cost/profile.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

constexpr Duration kHop{2'000'000};  // 2 us

GroupShape one_server(int ranks) {
  return {.ranks = ranks,
          .servers = 1,
          .ranks_per_server = ranks,
          .intra_bandwidth = 100_GBps,
          .inter_bandwidth = {},
          .intra_latency = kHop,
          .inter_latency = {}};
}

GroupShape several(int servers, int per_server, BytesPerSecond inter = 40_GBps) {
  return {.ranks = servers * per_server,
          .servers = servers,
          .ranks_per_server = per_server,
          .intra_bandwidth = 100_GBps,
          .inter_bandwidth = inter,
          .intra_latency = kHop,
          .inter_latency = 5 * kHop};
}

Duration duration(const MessageTerms& terms) {
  return to_duration(terms.latency + terms.wire_bytes / terms.bandwidth);
}

Duration time(CollectiveKind kind, Bytes bytes, const GroupShape& shape) {
  return duration(closed_form_message_cost()->collective(kind, bytes, shape));
}

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                     CollectiveKind::reduce_scatter, CollectiveKind::broadcast,
                                     CollectiveKind::all_to_all};

}  // namespace

TEST_CASE("a ring all-reduce takes 2(n-1)(alpha + S/(nB)) exactly") {
  for (int n = 2; n <= 16; ++n) {
    const Bytes shard(1'000'000);  // 10 us at 100 GB/s
    const Duration expected = 2 * (n - 1) * (kHop + Duration(10'000'000));
    CHECK(time(CollectiveKind::all_reduce, n * shard, one_server(n)) == expected);
  }
}

TEST_CASE("reduce-scatter and all-gather take (n-1)(alpha + S/(nB)) and make an all-reduce") {
  for (int n = 2; n <= 16; ++n) {
    const Bytes size = n * Bytes(1'000'000);
    const Duration gather = time(CollectiveKind::all_gather, size, one_server(n));
    CHECK(gather == (n - 1) * (kHop + Duration(10'000'000)));
    CHECK(time(CollectiveKind::reduce_scatter, size, one_server(n)) == gather);
    CHECK(time(CollectiveKind::all_reduce, size, one_server(n)) == 2 * gather);
  }
}

TEST_CASE("a pairwise all-to-all takes (n-1)(alpha + S/(nB))") {
  CHECK(time(CollectiveKind::all_to_all, Bytes(8'000'000), one_server(8)) ==
        7 * (kHop + Duration(10'000'000)));
}

TEST_CASE("one rank takes no time and moves no bytes") {
  for (const CollectiveKind kind : kKinds) {
    const MessageTerms terms = closed_form_message_cost()->collective(kind, 1_GiB, GroupShape{});
    CHECK(duration(terms) == Duration(0));
    CHECK(terms.wire_bytes == Bytes(0));
  }
}

TEST_CASE("an empty buffer takes the latency only") {
  CHECK(time(CollectiveKind::all_reduce, Bytes(0), one_server(8)) == 14 * kHop);
  CHECK(time(CollectiveKind::all_gather, Bytes(0), one_server(8)) == 7 * kHop);
  // A tree over four servers: two levels up and down between, 2 (8-1) hops inside.
  CHECK(time(CollectiveKind::all_reduce, Bytes(0), several(4, 8)) == 4 * 5 * kHop + 14 * kHop);
}

TEST_CASE("every edge of a ring carries 2(n-1)/n, (n-1)/n or all of the buffer") {
  const auto cost = closed_form_message_cost();
  const auto wire = [&](CollectiveKind kind) {
    return cost->collective(kind, Bytes(800), one_server(8)).wire_bytes;
  };
  CHECK(wire(CollectiveKind::all_reduce) == Bytes(1400));
  CHECK(wire(CollectiveKind::all_gather) == Bytes(700));
  CHECK(wire(CollectiveKind::reduce_scatter) == Bytes(700));
  CHECK(wire(CollectiveKind::broadcast) == Bytes(800));
  CHECK(wire(CollectiveKind::all_to_all) == Bytes(700));
}

TEST_CASE("a multi-server all-reduce is limited by the slower of inside and between") {
  // Two servers of 8: inside 2 7/8 S / 100 GB/s, between 2 15/16 S / B_node.
  const Duration inside_hops = 14 * kHop + 2 * 5 * kHop;
  const Bytes size(800'000'000);
  CHECK(time(CollectiveKind::all_reduce, size, several(2, 8, 40_GBps)) ==
        inside_hops + Duration(37'500'000'000));
  CHECK(time(CollectiveKind::all_reduce, size, several(2, 8, 400_GBps)) ==
        inside_hops + Duration(14'000'000'000));
}

TEST_CASE("over many servers the ring wins large buffers and the tree small ones") {
  const GroupShape shape = several(8, 1);
  // Tree: 2 S / B and 6 hops; ring: 2 7/8 S / B and 14 hops.
  CHECK(time(CollectiveKind::all_reduce, Bytes(0), shape) == 6 * 5 * kHop);
  CHECK(time(CollectiveKind::all_reduce, Bytes(8'000'000'000), shape) ==
        14 * 5 * kHop + Duration(350'000'000'000));
}

TEST_CASE("a multi-server all-to-all is limited by a rank's share of the NICs") {
  // 16 ranks: 8/16 of 1.6 GB leaves the server at 40 / 8 GB/s per rank.
  CHECK(time(CollectiveKind::all_to_all, Bytes(1'600'000'000), several(2, 8)) ==
        7 * kHop + 8 * 5 * kHop + Duration(160'000'000'000));
}

TEST_CASE("steps between servers take longer by what the network says of their size") {
  constexpr Duration kFirst(7'000'000), kLast(27'000'000);
  const std::array knots = {StepTime{Bytes(1000), kFirst}, StepTime{Bytes(3000), kLast}};
  const auto added = [&](CollectiveKind kind, std::int64_t bytes, GroupShape shape) {
    const Duration without = time(kind, Bytes(bytes), shape);
    shape.steps = shape.tree_steps = shape.exchange_steps = knots;
    return time(kind, Bytes(bytes), shape) - without;
  };
  // 15 steps of 1/16: below the knots, between them, above.
  CHECK(added(CollectiveKind::all_gather, 160, several(2, 8)) == 15 * kFirst);
  CHECK(added(CollectiveKind::reduce_scatter, 32'000, several(2, 8)) == 15 * (kFirst + kLast) / 2);
  CHECK(added(CollectiveKind::all_gather, 160'000, several(2, 8)) == 15 * kLast);
  CHECK(added(CollectiveKind::all_to_all, 160, several(2, 8)) == 8 * kFirst);
  // A tree of four servers has two levels, up and down; a ring 62 steps of smaller parts.
  CHECK(added(CollectiveKind::all_reduce, 160, several(4, 8)) == 4 * kFirst);
  CHECK(added(CollectiveKind::all_gather, 160, one_server(8)) == Duration(0));
}

TEST_CASE("rings, trees and all-to-alls between servers have steps of their own") {
  const std::array ring = {StepTime{Bytes(1), Duration(1'000'000)}};
  const std::array tree = {StepTime{Bytes(1), Duration(10'000'000)}};
  const std::array exchange = {StepTime{Bytes(1), Duration(100'000'000)}};
  const auto added = [&](CollectiveKind kind, GroupShape shape) {
    const Duration without = time(kind, Bytes(160), shape);
    shape.steps = ring;
    shape.tree_steps = tree;
    shape.exchange_steps = exchange;
    return time(kind, Bytes(160), shape) - without;
  };
  CHECK(added(CollectiveKind::all_gather, several(2, 8)) == 15 * ring[0].time);
  CHECK(added(CollectiveKind::all_reduce, several(4, 8)) == 4 * tree[0].time);
  CHECK(added(CollectiveKind::all_to_all, several(2, 8)) == 8 * exchange[0].time);
}

TEST_CASE("a chosen tree between servers takes the steps of trees, by the whole buffer") {
  const auto messages = closed_form_message_cost();
  const std::array ring = {StepTime{Bytes(1), Duration(1'000'000)}};
  const std::array tree = {StepTime{Bytes(1000), Duration(10'000'000)},
                           StepTime{Bytes(3000), Duration(30'000'000)}};
  const auto added = [&](std::string_view algorithm, GroupShape shape) {
    const collective::Choice choice{find_algorithm(algorithm), {}};
    const auto time_of = [&] {
      return duration(messages->collective(CollectiveKind::all_reduce, choice, Bytes(2000), shape));
    };
    const Duration without = time_of();
    shape.steps = ring;
    shape.tree_steps = tree;
    return time_of() - without;
  };
  CHECK(added("tree", several(8, 1)) == 6 * Duration(20'000'000));
  CHECK(added("tree", several(4, 8)) == 4 * Duration(20'000'000));
  CHECK(added("ring", several(8, 1)) == 14 * ring[0].time);
  CHECK(added("halving_doubling", several(8, 1)) == 6 * ring[0].time);
}

TEST_CASE("a start between servers stands for the hops inside") {
  GroupShape shape = several(2, 8);
  shape.start = Duration(14'000'000);
  CHECK(time(CollectiveKind::all_gather, Bytes(0), shape) == *shape.start + 5 * kHop);
  CHECK(time(CollectiveKind::all_to_all, Bytes(0), shape) == *shape.start + 8 * 5 * kHop);
  GroupShape inside = one_server(8);
  inside.start = shape.start;
  CHECK(time(CollectiveKind::all_gather, Bytes(0), inside) == 7 * kHop);
}

TEST_CASE("an all-to-all between servers reaches its own share of their bandwidth") {
  // 8/16 of 1.6 GB at 40 / 8 GB/s per rank, of which half: 0.32 s. A gather keeps all of it.
  GroupShape shape = several(2, 8);
  shape.exchange_efficiency = 0.5;
  CHECK(time(CollectiveKind::all_to_all, Bytes(1'600'000'000), shape) ==
        7 * kHop + 8 * 5 * kHop + Duration(320'000'000'000));
  CHECK(time(CollectiveKind::all_gather, Bytes(1'600'000'000), shape) ==
        14 * kHop + 5 * kHop + Duration(37'500'000'000));
}

TEST_CASE("a gather over servers runs at the slowest edge of its ring") {
  const Bytes size(1'600'000'000);
  CHECK(time(CollectiveKind::all_gather, size, several(2, 8)) ==
        14 * kHop + 5 * kHop + Duration(37'500'000'000));
  CHECK(time(CollectiveKind::all_gather, size, several(2, 8, 200_GBps)) ==
        14 * kHop + 5 * kHop + Duration(15'000'000'000));
}

TEST_CASE("no ring beats one port per rank, and bus bandwidth stays below the links") {
  for (const int n : {2, 3, 5, 8, 16}) {
    for (const std::int64_t size : {1'000, 1'000'000, 1'000'000'000}) {
      const double seconds =
          static_cast<double>(
              time(CollectiveKind::all_reduce, Bytes(size), one_server(n)).count()) *
          1e-12;
      const double bus = 2.0 * (n - 1) / n * static_cast<double>(size) / seconds;
      CHECK(bus <= 100e9);
    }
  }
}

TEST_CASE("closed forms never fall and never jump as the buffer grows") {
  for (const CollectiveKind kind : kKinds) {
    for (const GroupShape& shape : {one_server(6), several(2, 4), several(6, 3), several(9, 1)}) {
      Duration before{0};
      for (std::int64_t size = 0; size < 40'000'000; size += 100'000) {
        const Duration now = time(kind, Bytes(size), shape);
        CHECK(now >= before);
        // 100 kB at a tenth of the slowest edge, and one byte of rounding.
        if (size > 0) CHECK(now - before <= Duration(50'000'000 + 100));
        before = now;
      }
    }
  }
}

TEST_CASE("a message between two ranks takes alpha + S/B of its path") {
  const auto cost = closed_form_message_cost();
  CHECK(duration(cost->point_to_point(Bytes(1'000'000), one_server(2))) ==
        kHop + Duration(10'000'000));
  CHECK(duration(cost->point_to_point(Bytes(1'000'000), several(2, 1))) ==
        5 * kHop + Duration(25'000'000));
  CHECK(duration(cost->point_to_point(Bytes(0), several(2, 1))) == 5 * kHop);
}

TEST_CASE("the binary logarithm is rounded down") {
  CHECK(log2_floor(1) == 0);
  CHECK(log2_floor(2) == 1);
  CHECK(log2_floor(3) == 1);
  CHECK(log2_floor(1024) == 10);
  CHECK(log2_floor(1025) == 10);
}

TEST_CASE("a chosen algorithm takes the hops and bytes of its law on the links of the group") {
  const auto messages = closed_form_message_cost();
  const Bytes bytes(64'000'000);
  const auto time_of = [&](std::string_view algorithm, CollectiveKind kind,
                           const GroupShape& shape) {
    return duration(messages->collective(kind, {find_algorithm(algorithm), {}}, bytes, shape));
  };
  // 2(n-1) 2 us + 14/8 of 64 MB at 100 GB/s.
  CHECK(time_of("ring", CollectiveKind::all_reduce, one_server(8)) ==
        14 * kHop + Duration(1'120'000'000));
  // 2 log2(n) 2 us and the same bytes.
  CHECK(time_of("halving_doubling", CollectiveKind::all_reduce, one_server(8)) ==
        6 * kHop + Duration(1'120'000'000));
  // 2 floor(log2 n) 2 us + 2 S/B.
  CHECK(time_of("tree", CollectiveKind::all_reduce, one_server(8)) ==
        6 * kHop + Duration(1'280'000'000));
  // 2(n-1)(2 us + S/B).
  CHECK(time_of("naive", CollectiveKind::all_reduce, one_server(8)) ==
        14 * (kHop + Duration(640'000'000)));
  // The same in the root's server; 2(n-g)(10 us + S/B) over the part of its NICs, 5 GB/s, or, as
  // one at a time sends, over the only one.
  CHECK(time_of("naive", CollectiveKind::all_reduce, several(4, 8)) ==
        14 * (kHop + Duration(640'000'000)) + 48 * (5 * kHop + Duration(12'800'000'000)));
  GroupShape shared = several(4, 8);
  shared.nic = BytesPerSecond(40e9);
  CHECK(time_of("naive", CollectiveKind::all_reduce, shared) ==
        14 * (kHop + Duration(640'000'000)) + 48 * (5 * kHop + Duration(1'600'000'000)));
  // No more than the part of the NICs that the group has beside others.
  shared.nic = BytesPerSecond(100e9);
  CHECK(time_of("naive", CollectiveKind::all_reduce, shared) ==
        14 * (kHop + Duration(640'000'000)) + 48 * (5 * kHop + Duration(1'600'000'000)));
  // 2(g-1) 2 us + 2(N-1) 10 us + max(14/8 S/100 GB/s, 6/32 S over a rank's 5 GB/s).
  CHECK(time_of("hierarchical", CollectiveKind::all_reduce, several(4, 8)) ==
        14 * kHop + 6 * 5 * kHop + Duration(2'400'000'000));
  // log2(g) rounds inside, then log2(N) between, of S each, one after the other.
  CHECK(time_of("binomial_tree", CollectiveKind::broadcast, several(4, 8)) ==
        3 * (kHop + Duration(640'000'000)) + 2 * (5 * kHop + Duration(12'800'000'000)));
}

TEST_CASE("without a choice a collective costs what it did") {
  const auto messages = closed_form_message_cost();
  for (const CollectiveKind kind : kKinds)
    for (const GroupShape& shape : {one_server(6), several(3, 4)})
      CHECK(duration(messages->collective(kind, collective::Choice{}, 1_MiB, shape)) ==
            time(kind, 1_MiB, shape));
}
