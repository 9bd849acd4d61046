#include "sim/collective/algorithm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tests/collective/kinds.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

// How often each rank's contribution is in the sum that a rank holds of a shard.
using Contributions = std::vector<int>;
using Held = std::vector<std::vector<Contributions>>;  // by rank and shard

Contributions none(int n) {
  return Contributions(static_cast<std::size_t>(n), 0);
}
Contributions only(int n, int rank) {
  Contributions one = none(n);
  one[static_cast<std::size_t>(rank)] = 1;
  return one;
}
Contributions each_once(int n) {
  return Contributions(static_cast<std::size_t>(n), 1);
}

// What the ranks hold before. Shards that a rank has no data for are empty sums.
Held before(CollectiveKind kind, int n, int shards) {
  Held held(static_cast<std::size_t>(n),
            std::vector<Contributions>(static_cast<std::size_t>(shards), none(n)));
  for (int rank = 0; rank < n; ++rank) {
    for (int shard = 0; shard < shards; ++shard) {
      const bool own_only = kind == CollectiveKind::all_gather || kind == CollectiveKind::shift;
      const bool has = kind == CollectiveKind::broadcast ? rank == 0 : !own_only || shard == rank;
      if (has)
        held[static_cast<std::size_t>(rank)][static_cast<std::size_t>(shard)] = only(n, rank);
    }
  }
  return held;
}

// What a rank must hold of a shard afterwards; nullopt if nobody asks.
std::optional<Contributions> expected(CollectiveKind kind, int n, int rank, int shard) {
  switch (kind) {
    case CollectiveKind::all_reduce: return each_once(n);
    case CollectiveKind::all_gather: return only(n, shard);
    case CollectiveKind::reduce_scatter:
      return shard == rank ? std::optional(each_once(n)) : std::nullopt;
    case CollectiveKind::broadcast: return only(n, 0);
    case CollectiveKind::all_to_all: return std::nullopt;
    case CollectiveKind::shift:
      return (shard + 1) % n == rank ? std::optional(only(n, shard)) : std::nullopt;
  }
  return std::nullopt;
}

// All messages of a round leave before any arrives.
Held run(Held held, const std::vector<Message>& messages) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  for (std::size_t first = 0; first < messages.size();) {
    const Held sent = held;
    const int round = messages[first].round;
    for (; first < messages.size() && messages[first].round == round; ++first) {
      const Message& m = messages[first];
      Contributions& into = held[at(m.to)][at(m.shard)];
      const Contributions& what = sent[at(m.from)][at(m.shard)];
      for (std::size_t r = 0; r < into.size(); ++r)
        into[r] = (m.reduce ? into[r] : 0) + what[r];
    }
  }
  return held;
}

}  // namespace

// Whoever adds an algorithm gets this proof for free.
TEST_CASE("every algorithm leaves every rank with each contribution once") {
  for_each_supported(33, [](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    if (kind == CollectiveKind::all_to_all) return;
    CAPTURE(entry.name);
    CAPTURE(name(kind));
    CAPTURE(n);
    const int shards = entry.shards(kind, n);
    const Held after = run(before(kind, n, shards), entry.build(kind, n));
    for (int rank = 0; rank < n; ++rank)
      for (int shard = 0; shard < shards; ++shard)
        if (const auto want = expected(kind, n, rank, shard))
          CHECK(after[static_cast<std::size_t>(rank)][static_cast<std::size_t>(shard)] == *want);
  });
}

TEST_CASE("every all-to-all delivers every shard to its owner once") {
  for_each_supported(33, [](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    if (kind != CollectiveKind::all_to_all) return;
    CAPTURE(entry.name);
    CAPTURE(n);
    std::map<std::pair<int, int>, int> delivered;  // from rank, to rank
    for (const Message& m : entry.build(kind, n)) {
      CHECK(m.shard == m.to);
      CHECK(!m.reduce);
      ++delivered[{m.from, m.to}];
    }
    CHECK(delivered.size() == static_cast<std::size_t>(n) * static_cast<std::size_t>(n - 1));
    for (const auto& [pair, times] : delivered)
      CHECK((pair.first != pair.second && times == 1));
  });
}

TEST_CASE("the proof can fail") {
  std::vector<Message> messages = find_algorithm("ring")->build(CollectiveKind::all_reduce, 4);
  messages.pop_back();
  CHECK(run(before(CollectiveKind::all_reduce, 4, 4), messages) !=
        Held(4, std::vector<Contributions>(4, each_once(4))));
}

TEST_CASE("messages come by round and use each port once per round") {
  for_each_supported(40, [](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    CAPTURE(entry.name);
    CAPTURE(n);
    std::map<std::pair<int, int>, std::set<int>> to, from;  // by round and rank
    int last_round = 0;
    for (const Message& m : entry.build(kind, n)) {
      CHECK(m.round >= last_round);
      last_round = m.round;
      CHECK((0 <= m.from && m.from < n && 0 <= m.to && m.to < n && m.from != m.to));
      CHECK((0 <= m.shard && m.shard < entry.shards(kind, n)));
      to[{m.round, m.from}].insert(m.to);
      from[{m.round, m.to}].insert(m.from);
    }
    for (const auto& [port, partners] : to)
      CHECK(partners.size() == 1);
    for (const auto& [port, partners] : from)
      CHECK(partners.size() == 1);
  });
}

TEST_CASE("the flows of an algorithm carry what its messages carry") {
  for_each_supported(40, [](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    CAPTURE(entry.name);
    CAPTURE(name(kind));
    CAPTURE(n);
    std::map<std::pair<int, int>, int> carried;  // shards, by from and to
    for (const Message& m : entry.build(kind, n))
      ++carried[{m.from, m.to}];
    std::vector<Edge> edges;
    for (const auto& [ends, count] : carried)
      edges.push_back({ends.first, ends.second, Share(count, entry.shards(kind, n))});
    CHECK(entry.edges(kind, n) == edges);
  });
}

TEST_CASE("a ring all-reduce is n flows of 2(n-1)/n S, each to the next rank") {
  const auto edges = find_algorithm("ring")->edges(CollectiveKind::all_reduce, 8);
  REQUIRE(edges.size() == 8);
  CHECK(edges[3] == Edge{3, 4, Share(14, 8)});
  CHECK(edges[7] == Edge{7, 0, Share(14, 8)});
}

// A message needs what its sender received of the same shard. The pairwise all-to-all needs
// nothing; there the rounds follow one another because a rank starts one message at a time.
TEST_CASE("the latency of the flows is the longest chain of messages that need one another") {
  for_each_supported(40, [](const AlgorithmEntry& entry, CollectiveKind kind, int n) {
    CAPTURE(entry.name);
    CAPTURE(name(kind));
    CAPTURE(n);
    const std::vector<Message> messages = entry.build(kind, n);
    std::map<std::pair<int, int>, int> now, next;  // chain that ends at a rank, by shard
    int longest = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& m = messages[i];
      if (i > 0 && m.round != messages[i - 1].round) now = next;
      const auto found = now.find({m.from, m.shard});
      const int chain = 1 + (found == now.end() ? 0 : found->second);
      int& arrived = next[{m.to, m.shard}];
      arrived = std::max(arrived, chain);
      longest = std::max(longest, chain);
    }
    const bool pairwise = kind == CollectiveKind::all_to_all;
    CHECK(entry.latency_steps(kind, n) == (pairwise ? rounds(messages) : longest));
  });
}

TEST_CASE("each algorithm takes its number of rounds") {
  const auto count = [](std::string_view algorithm, CollectiveKind kind, int n) {
    return rounds(find_algorithm(algorithm)->build(kind, n));
  };
  for (int n = 2; n <= 32; ++n) {
    CHECK(count("ring", CollectiveKind::all_reduce, n) == 2 * (n - 1));
    CHECK(count("ring", CollectiveKind::all_gather, n) == n - 1);
    CHECK(count("ring", CollectiveKind::reduce_scatter, n) == n - 1);
    CHECK(count("ring", CollectiveKind::broadcast, n) == 2 * (n - 1));
    CHECK(count("pairwise", CollectiveKind::all_to_all, n) == n - 1);
  }
  for (int q = 0; q <= 6; ++q) {
    CHECK(count("halving_doubling", CollectiveKind::all_reduce, 1 << q) == 2 * q);
    CHECK(count("halving_doubling", CollectiveKind::all_gather, 1 << q) == q);
  }
}

TEST_CASE("a rank forwards in one of the two trees at most, and no port carries more than 2S") {
  for (int n = 2; n <= 130; ++n) {
    CAPTURE(n);
    const AlgorithmEntry& tree = *find_algorithm("double_tree");
    std::set<std::pair<int, int>> forwards;  // shard, rank
    std::vector<std::vector<int>> children(2, std::vector<int>(static_cast<std::size_t>(n), 0));
    for (const Message& m : tree.build(CollectiveKind::all_reduce, n)) {
      if (!m.reduce) continue;
      forwards.insert({m.shard, m.to});
      ++children[static_cast<std::size_t>(m.shard)][static_cast<std::size_t>(m.to)];
    }
    for (const auto& of_tree : children)
      CHECK(*std::max_element(of_tree.begin(), of_tree.end()) <= 2);
    for (int rank = 0; rank < n; ++rank)
      CHECK(!(forwards.contains({0, rank}) && forwards.contains({1, rank})));

    std::vector<Share> sent(static_cast<std::size_t>(n)), received(static_cast<std::size_t>(n));
    for (const Edge& edge : tree.edges(CollectiveKind::all_reduce, n)) {
      Share& out = sent[static_cast<std::size_t>(edge.from)];
      Share& in = received[static_cast<std::size_t>(edge.to)];
      out = out + edge.share;
      in = in + edge.share;
    }
    for (const auto& side : {sent, received})
      for (Share share : side)
        CHECK(share.numerator() <= 2 * share.denominator());
  }
}

TEST_CASE("algorithms are found under both spellings, and say what they support") {
  CHECK(find_algorithm("halving-doubling") == find_algorithm("halving_doubling"));
  CHECK(find_algorithm("halving_doubling") != nullptr);
  CHECK(find_algorithm("rings") == nullptr);
  CHECK(!find_algorithm("halving_doubling")->supports(CollectiveKind::all_reduce, 6));
  CHECK(!find_algorithm("double_tree")->supports(CollectiveKind::all_reduce, 1));
  CHECK(!find_algorithm("ring")->supports(CollectiveKind::all_to_all, 4));
  CHECK(!find_algorithm("ring")->supports(CollectiveKind::all_reduce, 0));
  for (CollectiveKind kind : kKinds) {
    bool any = false;
    for (const AlgorithmEntry& entry : algorithms())
      any |= entry.supports(kind, 6);
    CHECK(any);
  }
}
