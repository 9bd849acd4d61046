#include "sim/collective/algorithm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

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
      const bool own = shard * n / shards == rank;
      const bool has = kind == CollectiveKind::broadcast ? rank == 0 : !own_only || own;
      if (has)
        held[static_cast<std::size_t>(rank)][static_cast<std::size_t>(shard)] = only(n, rank);
    }
  }
  return held;
}

// What a rank must hold afterwards of a shard of an owner; nullopt if nobody asks.
std::optional<Contributions> expected(CollectiveKind kind, int n, int rank, int owner) {
  switch (kind) {
    case CollectiveKind::all_reduce: return each_once(n);
    case CollectiveKind::all_gather: return only(n, owner);
    case CollectiveKind::reduce_scatter:
      return owner == rank ? std::optional(each_once(n)) : std::nullopt;
    case CollectiveKind::broadcast: return only(n, 0);
    case CollectiveKind::all_to_all: return std::nullopt;
    case CollectiveKind::shift:
      return (owner + 1) % n == rank ? std::optional(only(n, owner)) : std::nullopt;
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
  for_each_supported(33, [](const AlgorithmEntry& entry, CollectiveKind kind, Group group) {
    if (kind == CollectiveKind::all_to_all) return;
    CAPTURE(entry.name);
    CAPTURE(name(kind));
    const int n = group.ranks;
    CAPTURE(n);
    CAPTURE(group.per_server);
    const int shards = entry.shards(kind, group);
    const Held after = run(before(kind, n, shards), entry.build(kind, group));
    for (int rank = 0; rank < n; ++rank)
      for (int shard = 0; shard < shards; ++shard)
        if (const auto want = expected(kind, n, rank, shard * n / shards))
          CHECK(after[static_cast<std::size_t>(rank)][static_cast<std::size_t>(shard)] == *want);
  });
}

TEST_CASE("every all-to-all delivers every shard to its owner once") {
  for_each_supported(33, [](const AlgorithmEntry& entry, CollectiveKind kind, Group group) {
    if (kind != CollectiveKind::all_to_all) return;
    CAPTURE(entry.name);
    const int n = group.ranks;
    CAPTURE(n);
    CAPTURE(group.per_server);
    std::map<std::pair<int, int>, int> delivered;  // from rank, to rank
    for (const Message& m : entry.build(kind, group)) {
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

TEST_CASE(
    "messages come by round and use each port once per round: one inside the server, one outside") {
  for_each_supported(40, [](const AlgorithmEntry& entry, CollectiveKind kind, Group group) {
    CAPTURE(entry.name);
    const int n = group.ranks;
    CAPTURE(n);
    CAPTURE(group.per_server);
    std::map<std::tuple<int, int, bool>, std::set<int>> to, from;  // by round, rank and port
    int last_round = 0;
    for (const Message& m : entry.build(kind, group)) {
      CHECK(m.round >= last_round);
      last_round = m.round;
      CHECK((0 <= m.from && m.from < n && 0 <= m.to && m.to < n && m.from != m.to));
      CHECK((0 <= m.shard && m.shard < entry.shards(kind, group)));
      const bool far = m.from / group.per_server != m.to / group.per_server;
      to[{m.round, m.from, far}].insert(m.to);
      from[{m.round, m.to, far}].insert(m.from);
    }
    for (const auto& [port, partners] : to)
      CHECK(partners.size() == 1);
    for (const auto& [port, partners] : from)
      CHECK(partners.size() == 1);
  });
}

TEST_CASE("the flows of an algorithm carry what its messages carry") {
  for_each_supported(40, [](const AlgorithmEntry& entry, CollectiveKind kind, Group group) {
    CAPTURE(entry.name);
    CAPTURE(name(kind));
    const int n = group.ranks;
    CAPTURE(n);
    CAPTURE(group.per_server);
    std::map<std::pair<int, int>, int> carried;  // shards, by from and to
    for (const Message& m : entry.build(kind, group))
      ++carried[{m.from, m.to}];
    std::vector<Edge> edges;
    for (const auto& [ends, count] : carried)
      edges.push_back({ends.first, ends.second, Share(count, entry.shards(kind, group))});
    CHECK(entry.edges(kind, group) == edges);
  });
}

TEST_CASE("a ring all-reduce is n flows of 2(n-1)/n S, each to the next rank") {
  const auto edges = find_algorithm("ring")->edges(CollectiveKind::all_reduce, 8);
  REQUIRE(edges.size() == 8);
  CHECK(edges[3] == Edge{3, 4, Share(14, 8)});
  CHECK(edges[7] == Edge{7, 0, Share(14, 8)});
}

// A message needs what its sender received of the same shard. Where rounds follow one another only
// because a rank starts one message at a time, the law counts rounds.
TEST_CASE("the hops of a law are the longest chain of messages that need one another") {
  for_each_supported(24, [](const AlgorithmEntry& entry, CollectiveKind kind, Group group) {
    CAPTURE(entry.name);
    CAPTURE(name(kind));
    CAPTURE(group.ranks);
    CAPTURE(group.per_server);
    const std::vector<Message> messages = entry.build(kind, group);
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
    const Law law = entry.law(kind, group);
    const bool by_rounds = !law.streams || entry.name == "pairwise";
    CHECK(law.near_steps + law.far_steps == (by_rounds ? rounds(messages) : longest));
  });
}

namespace {

// Of ports, by rank: what they send and receive.
struct Ports {
  explicit Ports(int n) : sent(static_cast<std::size_t>(n)), received(sent) {}
  std::vector<int> sent, received;  // shards

  void add(const Message& m) {
    ++sent[static_cast<std::size_t>(m.from)];
    ++received[static_cast<std::size_t>(m.to)];
  }
  int busiest() const {
    return std::max(*std::max_element(sent.begin(), sent.end()),
                    *std::max_element(received.begin(), received.end()));
  }
};

struct Counted {
  int near = 0, far = 0, sent = 0;
};

// The busiest ports of all messages, or of each round added up.
Counted count(const std::vector<Message>& messages, Group group, bool by_round) {
  Counted counted;
  Ports near(group.ranks), far(group.ranks), both(group.ranks);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    (m.from / group.per_server == m.to / group.per_server ? near : far).add(m);
    both.add(m);
    const bool last = i + 1 == messages.size();
    if (!last && !(by_round && messages[i + 1].round != m.round)) continue;
    counted.near += near.busiest();
    counted.far += far.busiest();
    near = far = Ports(group.ranks);
  }
  counted.sent = both.busiest();
  return counted;
}

}  // namespace

TEST_CASE("the bytes of a law are those of the busiest ports of its messages, to the byte") {
  for_each_supported(32, [](const AlgorithmEntry& entry, CollectiveKind kind, Group group) {
    CAPTURE(entry.name);
    CAPTURE(name(kind));
    CAPTURE(group.ranks);
    CAPTURE(group.per_server);
    const Law law = entry.law(kind, group);
    const Counted counted = count(entry.build(kind, group), group, !law.streams);
    const int shards = entry.shards(kind, group);
    CHECK(law.near == Share(counted.near, shards));
    CHECK(law.far == Share(counted.far, shards));
    CHECK(law.sent == Share(counted.sent, shards));
  });
}

TEST_CASE("on servers with different numbers of ranks no port carries more than the law says") {
  for (const AlgorithmEntry& entry : algorithms()) {
    for (CollectiveKind kind : kKinds) {
      for (const Group group : {Group(5, 2), Group(7, 4), Group(11, 8), Group(13, 3)}) {
        if (!entry.supports(kind, group)) continue;
        CAPTURE(entry.name);
        CAPTURE(group.ranks);
        const Law law = entry.law(kind, group);
        const Counted counted = count(entry.build(kind, group), group, !law.streams);
        const int shards = entry.shards(kind, group);
        CHECK(Share(counted.near, shards).value() <= law.near.value());
        CHECK(Share(counted.far, shards).value() <= law.far.value());
        CHECK(Share(counted.sent, shards).value() <= law.sent.value());
      }
    }
  }
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
    const AlgorithmEntry& tree = *find_algorithm("tree");
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
  for (CollectiveKind kind : kKinds) {
    bool any = false;
    for (const AlgorithmEntry& entry : algorithms())
      any |= entry.supports(kind, 6);
    CHECK(any);
  }
}

TEST_CASE("an algorithm that cannot do a collective says what is missing") {
  const auto objection = [](std::string_view algorithm, CollectiveKind kind, Group group) {
    return find_algorithm(algorithm)->objection(kind, group);
  };
  CHECK(objection("halving_doubling", CollectiveKind::all_reduce, 6) ==
        "needs a power of two of ranks");
  CHECK(objection("halving_doubling", CollectiveKind::all_reduce, {8, 6}) ==
        "needs the same number of ranks on every server");
  CHECK(objection("pairwise", CollectiveKind::all_reduce, 4) == "has no all-reduce");
  CHECK(objection("ring", CollectiveKind::all_to_all, 4) == "has no all-to-all");
  CHECK(objection("ring", CollectiveKind::all_reduce, {7, 4}).empty());
  CHECK(objection("hierarchical_copy", CollectiveKind::all_reduce, 5) ==
        "needs an even number of ranks");
  CHECK(objection("hierarchical_copy", CollectiveKind::all_reduce, {16, 8}) ==
        "is one of a single server");
  CHECK(algorithm_names(CollectiveKind::all_to_all) == std::vector<std::string_view>{"pairwise"});
}
