// The messages of an algorithm on identical links against the closed forms, in whole ticks.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "sim/base/random.h"
#include "sim/collective/algorithm.h"
#include "tests/collective/kinds.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

// Every pair of ranks has a link of its own behind one full-duplex port per rank.
struct Links {
  std::int64_t alpha;  // ticks
  std::int64_t bytes_per_tick;
};

struct Measured {
  std::int64_t ticks = 0;
  std::vector<std::int64_t> sent;  // bytes, by rank
};

// A rank enters a round when its messages of the rounds before have ended. Requires: the bytes of
// every message are a multiple of bytes_per_tick.
Measured measure(const std::vector<Message>& messages, int n, int shards, std::int64_t bytes,
                 const Links& links) {
  Measured result;
  result.sent.assign(static_cast<std::size_t>(n), 0);
  std::vector<std::int64_t> free(static_cast<std::size_t>(n), 0);
  std::map<std::tuple<int, int, int>, std::int64_t> together;  // bytes, by round, from, to
  REQUIRE(bytes % shards == 0);
  for (const Message& m : messages)
    together[{m.round, m.from, m.to}] += bytes / shards;
  int round = -1;
  std::vector<std::int64_t> busy = free;
  for (const auto& [key, size] : together) {
    if (std::get<0>(key) != round) free = busy;
    round = std::get<0>(key);
    const auto from = static_cast<std::size_t>(std::get<1>(key));
    const auto to = static_cast<std::size_t>(std::get<2>(key));
    REQUIRE(size % links.bytes_per_tick == 0);
    const std::int64_t end =
        std::max(free[from], free[to]) + links.alpha + size / links.bytes_per_tick;
    busy[from] = std::max(busy[from], end);
    busy[to] = std::max(busy[to], end);
    result.sent[from] += size;
    result.ticks = std::max(result.ticks, end);
  }
  return result;
}

Measured measure(std::string_view algorithm, CollectiveKind kind, int n, std::int64_t bytes,
                 const Links& links) {
  const AlgorithmEntry& entry = *find_algorithm(algorithm);
  REQUIRE(entry.supports(kind, n));
  return measure(entry.build(kind, n), n, entry.shards(kind, n), bytes, links);
}

constexpr Links kSomeLinks[] = {{1, 1}, {7, 3}, {1000, 5}};

}  // namespace

TEST_CASE("ring all-reduce takes 2(n-1)(alpha + S/(nB)), its halves half of it") {
  for (const Links& links : kSomeLinks) {
    for (int n = 1; n <= 24; ++n) {
      for (std::int64_t k : {0, 1, 40}) {  // k = 0: latency only
        const std::int64_t bytes = n * links.bytes_per_tick * k;
        const auto ticks = [&](CollectiveKind kind) {
          return measure("ring", kind, n, bytes, links).ticks;
        };
        CAPTURE(n);
        CAPTURE(bytes);
        CHECK(ticks(CollectiveKind::all_reduce) == 2 * (n - 1) * (links.alpha + k));
        CHECK(ticks(CollectiveKind::reduce_scatter) == (n - 1) * (links.alpha + k));
        CHECK(ticks(CollectiveKind::all_gather) == (n - 1) * (links.alpha + k));
        CHECK(ticks(CollectiveKind::broadcast) == 2 * (n - 1) * (links.alpha + k));
      }
    }
  }
}

TEST_CASE("pairwise all-to-all takes (n-1)(alpha + S/(nB)) on a non-blocking switch") {
  for (const Links& links : kSomeLinks)
    for (int n = 1; n <= 24; ++n)
      for (std::int64_t k : {0, 1, 40})
        CHECK(
            measure("pairwise", CollectiveKind::all_to_all, n, n * links.bytes_per_tick * k, links)
                .ticks == (n - 1) * (links.alpha + k));
}

TEST_CASE("halving-doubling takes 2 log2(n) alpha + 2(n-1)S/(nB)") {
  for (const Links& links : kSomeLinks) {
    for (int q = 0; q <= 6; ++q) {
      const int n = 1 << q;
      for (std::int64_t k : {0, 1, 40}) {
        const auto ticks = [&](CollectiveKind kind) {
          return measure("halving_doubling", kind, n, n * links.bytes_per_tick * k, links).ticks;
        };
        CHECK(ticks(CollectiveKind::all_reduce) == 2 * q * links.alpha + 2 * (n - 1) * k);
        CHECK(ticks(CollectiveKind::reduce_scatter) == q * links.alpha + (n - 1) * k);
        CHECK(ticks(CollectiveKind::all_gather) == q * links.alpha + (n - 1) * k);
      }
    }
  }
}

TEST_CASE("on one server the hierarchical algorithm is the ring") {
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter})
    for (int n = 1; n <= 24; ++n)
      CHECK(find_algorithm("hierarchical")->build(kind, n) ==
            find_algorithm("ring")->build(kind, n));
}

// 2(g-1)(a1 + S/(g B1)) + 2(N-1)(a2 + S/(n B2)).
TEST_CASE("a hierarchical all-reduce has the hops and bytes of its levels") {
  for (const auto& [servers, each] : {std::pair(2, 8), std::pair(4, 4), std::pair(3, 5)}) {
    const Law law =
        find_algorithm("hierarchical")->law(CollectiveKind::all_reduce, {servers * each, each});
    CHECK(law.near_steps == 2 * (each - 1));
    CHECK(law.far_steps == 2 * (servers - 1));
    CHECK(law.near == Share(2 * (each - 1), each));
    CHECK(law.far == Share(2 * (servers - 1), servers * each));
  }
}

// Where a ring rank carries 2(n-1)/n S, the root carries (n-1) S each way.
TEST_CASE("a naive all-reduce takes 2(n-1)(alpha + S/B), and n/2 times the bytes on one port") {
  for (const Links& links : kSomeLinks)
    for (int n = 2; n <= 24; ++n) {
      const std::int64_t k = 40;
      const Measured measured =
          measure("naive", CollectiveKind::all_reduce, n, links.bytes_per_tick * k, links);
      CHECK(measured.ticks == 2 * (n - 1) * (links.alpha + k));
      const Share root = find_algorithm("naive")->law(CollectiveKind::all_reduce, n).sent;
      CHECK(root == wire_share(CollectiveKind::all_reduce, n) * Share(n, 2));
    }
}

// Rounds inside the halves carry two parts of n, the two between them one.
TEST_CASE("a hierarchical copy takes n alpha + 2(n-1)/n S/B, in half as many rounds as a ring") {
  for (const Links& links : kSomeLinks)
    for (int n = 2; n <= 24; n += 2) {
      const std::int64_t k = 40;
      const Measured measured = measure("hierarchical_copy", CollectiveKind::all_reduce, n,
                                        links.bytes_per_tick * k * n, links);
      CHECK(measured.ticks == n * links.alpha + 2 * (n - 1) * k);
    }
}

TEST_CASE("a broadcast down a binomial tree takes ceil(log2 n)(alpha + S/B)") {
  for (const Links& links : kSomeLinks)
    for (int n = 1; n <= 33; ++n) {
      int rounds = 0;
      while ((1 << rounds) < n)
        ++rounds;
      const Measured measured =
          measure("binomial_tree", CollectiveKind::broadcast, n, 40 * links.bytes_per_tick, links);
      CHECK(measured.ticks == rounds * (links.alpha + 40));
    }
}

TEST_CASE("a group of one takes no time and sends no byte") {
  for_each_on_one_server(1, [](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    CHECK(entry.build(kind, n).empty());
    CHECK(entry.edges(kind, n).empty());
    const Law law = entry.law(kind, n);
    CHECK(law.near_steps + law.far_steps == 0);
    CHECK(law.sent == Share());
  });
}

TEST_CASE("a rank sends what its kind of collective has to send") {
  for (std::string_view algorithm : {"ring", "halving_doubling", "pairwise"}) {
    const AlgorithmEntry& entry = *find_algorithm(algorithm);
    for (CollectiveKind kind : kKinds) {
      for (int n = 2; n <= 32; ++n) {
        if (!entry.supports(kind, n)) continue;
        const std::int64_t bytes = 420 * n;
        const std::int64_t least = wire_share(kind, n).of(Bytes(bytes)).count();
        const auto sent = measure(algorithm, kind, n, bytes, {1, 1}).sent;
        for (int rank = 0; rank < n; ++rank) {
          // The last rank of a broadcast chain has nobody to pass it on to.
          const bool last = kind == CollectiveKind::broadcast && rank == n - 1;
          CHECK(sent[static_cast<std::size_t>(rank)] == (last ? 0 : least));
        }
      }
    }
  }
}

// max(alpha ceil(log2 n), 2(n-1)S/(nB)) for one full-duplex port per rank; hence busbw <= B.
TEST_CASE("no all-reduce beats the bound of latency and bandwidth") {
  for_each_on_one_server(40, [](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    if (kind != CollectiveKind::all_reduce) return;
    CAPTURE(entry.name);
    CAPTURE(n);
    int steps = 0;
    while ((1 << steps) < n)
      ++steps;
    for (const Links& links : kSomeLinks) {
      for (std::int64_t k : {0, 1, 40, 100'000}) {
        const std::int64_t bytes = 2 * n * links.bytes_per_tick * k;
        const std::int64_t ticks = measure(entry.name, kind, n, bytes, links).ticks;
        CHECK(ticks >= links.alpha * steps);
        CHECK(ticks * links.bytes_per_tick >= wire_share(kind, n).of(Bytes(bytes)).count());
      }
    }
  });
}

TEST_CASE("the double tree beats the ring in latency, not in bandwidth") {
  for (int n = 8; n <= 64; n += 4) {
    const auto ticks = [&](std::string_view algorithm, std::int64_t bytes) {
      return measure(algorithm, CollectiveKind::all_reduce, n, bytes, {1000, 1}).ticks;
    };
    CHECK(ticks("tree", 2 * n) < ticks("ring", 2 * n));
    CHECK(ticks("tree", 2'000'000 * n) > ticks("ring", 2'000'000 * n));
  }
}

TEST_CASE("relabelling the ranks of a group changes neither time nor bytes") {
  SplitMix64 random(36);
  for_each_on_one_server(20, [&](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    std::vector<int> label(static_cast<std::size_t>(n));
    std::iota(label.begin(), label.end(), 0);
    for (std::size_t i = label.size(); i > 1; --i)
      std::swap(label[i - 1], label[random.below(i)]);
    std::vector<Message> messages = entry.build(kind, n);
    const int shards = entry.shards(kind, n);
    const Measured straight = measure(messages, n, shards, 60 * shards, {7, 3});
    for (Message& m : messages) {
      m.from = label[static_cast<std::size_t>(m.from)];
      m.to = label[static_cast<std::size_t>(m.to)];
    }
    const Measured relabelled = measure(messages, n, shards, 60 * shards, {7, 3});
    CHECK(relabelled.ticks == straight.ticks);
    for (int rank = 0; rank < n; ++rank)
      CHECK(relabelled.sent[static_cast<std::size_t>(label[static_cast<std::size_t>(rank)])] ==
            straight.sent[static_cast<std::size_t>(rank)]);
  });
}
