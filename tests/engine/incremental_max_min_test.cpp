// P18: what is computed anew of what a change touches is what all of it computed anew would be.
#include "sim/engine/flows/incremental_max_min.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "sim/base/random.h"
#include "sim/engine/engine.h"
#include "sim/engine/sharing.h"
#include "tests/engine/random_machine.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

struct Traffic {
  Path path;
  std::int64_t limit = 0;
};

// Flows that come and go on a few links. What the groups say is compared with the full solution.
class Comparison {
 public:
  Comparison(SplitMix64& random, std::uint64_t links, std::uint64_t capacity)
      : random_(random), capacity_of_link_(capacity), capacity_(some(random, links, capacity)) {}

  // Changes at one instant, then the comparison.
  void step(std::uint64_t changes, std::uint64_t at_most) {
    for (; changes > 0; --changes) {
      if (!flows_.empty() && (flows_.size() >= at_most || random_.below(3) == 0))
        remove();
      else
        add();
    }
    incremental_.divide();
    std::vector<Flow> list;
    for (const auto& [id, traffic] : flows_)
      list.push_back({traffic.path, traffic.limit});
    MaxMinSharing().rates(capacity_, list, expected_);
    for (const RateGroups::Move& move : incremental_.moved())
      group_of_[move.flow] = move.to;
    std::size_t i = 0;
    for (const auto& [id, traffic] : flows_) {
      REQUIRE(incremental_.flow_rate(id) == expected_[i]);
      REQUIRE(incremental_.rate(group_of_.at(id)) == expected_[i]);
      ++i;
    }
  }

 private:
  static IdVector<LinkId, std::int64_t> some(SplitMix64& random, std::uint64_t links,
                                             std::uint64_t capacity) {
    IdVector<LinkId, std::int64_t> all;
    for (std::uint64_t l = 0; l < links; ++l)
      all.push_back(static_cast<std::int64_t>(1 + random.below(capacity)));
    return all;
  }

  void add() {
    std::uint32_t id = 0;
    while (flows_.contains(id))
      ++id;
    Traffic& traffic = flows_[id];
    for (std::uint64_t hops = random_.below(5); hops > 0; --hops)
      traffic.path.push_back({static_cast<LinkId>(random_.below(capacity_.size())),
                              static_cast<std::int32_t>(1 + random_.below(3))});
    traffic.limit = static_cast<std::int64_t>(1 + random_.below(capacity_of_link_));
    if (random_.below(3) == 0) traffic.limit = static_cast<std::int64_t>(capacity_of_link_) * 8;
    incremental_.add(id, traffic.path, traffic.limit);
  }

  void remove() {
    const auto at =
        std::next(flows_.begin(), static_cast<std::ptrdiff_t>(random_.below(flows_.size())));
    incremental_.remove(at->first);
    group_of_.erase(at->first);
    flows_.erase(at);
  }

  SplitMix64& random_;
  std::uint64_t capacity_of_link_;
  IdVector<LinkId, std::int64_t> capacity_;
  IncrementalMaxMin incremental_{capacity_};
  std::map<std::uint32_t, Traffic> flows_;
  std::map<std::uint32_t, std::uint32_t> group_of_;
  std::vector<std::int64_t> expected_;
};

}  // namespace

TEST_CASE("after every change of 2,000 random networks the rates are those of the full solution") {
  SplitMix64 random(18);
  for (int trial = 0; trial < 2000; ++trial) {
    CAPTURE(trial);
    // Capacities of a few bytes/s make nearly every share an equal one, or one of less than 1.
    constexpr std::uint64_t kCapacity[] = {6, 50, 1000, 1'000'000'000'000};
    Comparison comparison(random, 1 + random.below(trial % 8 == 0 ? 60 : 12), kCapacity[trial % 4]);
    for (int step = 0; step < 30; ++step)
      comparison.step(1 + random.below(step == 0 ? 30 : 3), trial % 8 == 0 ? 120 : 25);
  }
}

TEST_CASE("runs of 2,000 random machines are those with all computed anew, to the picosecond") {
  const MaxMinSharing full;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    const auto machine = random_machine(seed, {.inboxes = seed % 2 == 0});
    RunOptions anew;
    anew.sharing = &full;
    const Outcome outcome = run(machine->machine()), expected = run(machine->machine(), anew);
    REQUIRE(outcome.index() == expected.index());
    const auto trace_of = [](const Outcome& of) -> const Trace& {
      const auto* stuck = std::get_if<Deadlock>(&of);
      return stuck != nullptr ? stuck->trace : std::get<Trace>(of);
    };
    const Trace &trace = trace_of(outcome), &other = trace_of(expected);
    CHECK(trace.end == other.end);
    CHECK(trace.events == other.events);
    REQUIRE(trace.spans.size() == other.spans.size());
    for (std::size_t i = 0; i < trace.spans.size(); ++i)
      CHECK(trace.spans[i] == other.spans[i]);
  }
}

TEST_CASE("floored shares hold back flows that fit") {
  // 3 + 3 + 5 are 11 bytes/s, but a third of 11 is 3: who left such a link out would give 5.
  IdVector<LinkId, std::int64_t> capacity(1, 11);
  IncrementalMaxMin shares(capacity);
  const Path path{{LinkId{0}}};
  shares.add(0, path, 3);
  shares.add(1, path, 3);
  shares.add(2, path, 5);
  shares.divide();
  CHECK(shares.flow_rate(2) == 3);
}

TEST_CASE("links that cannot fill are never computed") {
  IdVector<LinkId, std::int64_t> capacity;
  const LinkId wide = capacity.push_back(1000), exact = capacity.push_back(100),
               busy = capacity.push_back(10);
  IncrementalMaxMin shares(capacity);
  const Path free{{wide}, {exact}}, held{{wide}, {busy}};
  for (std::uint32_t flow = 0; flow < 10; ++flow)
    shares.add(flow, free, 10);  // ten of the fastest fill the second link and no more
  shares.divide();
  CHECK(shares.computed() == 0);
  shares.add(10, held, 10);
  shares.divide();
  CHECK(shares.computed() == 0);
  shares.add(11, held, 10);
  shares.divide();
  CHECK(shares.computed() >= 1);
  CHECK(shares.flow_rate(0) == 10);
  CHECK(shares.flow_rate(11) == 5);
}

TEST_CASE("what happens elsewhere costs nothing") {
  // 64 links with 8 flows each; on one of them flows come and go.
  IdVector<LinkId, std::int64_t> capacity(64, 1'000'003);
  IncrementalMaxMin shares(capacity);
  std::vector<Path> paths;
  for (std::uint32_t link = 0; link < 64; ++link)
    paths.push_back({{LinkId{link}}});
  for (std::uint32_t flow = 0; flow < 512; ++flow)
    shares.add(flow, paths[flow % 64], 1'000'000);
  shares.divide();
  CHECK(shares.computed() == 64);
  for (std::uint32_t flow = 0; flow < 512; flow += 64) {
    shares.remove(flow);
    shares.divide();
    CHECK(shares.changed().size() <= 1);
  }
  CHECK(shares.computed() <= 64 + 8);
  // Seven flows share what eight did, and none of them stays below.
  CHECK(shares.shared_again() == shares.computed() - 64);
  CHECK(shares.shared_again() > 0);
}

TEST_CASE("where all flows are new, each link is computed a few times") {
  SplitMix64 random(3);
  IdVector<LinkId, std::int64_t> capacity;
  for (int link = 0; link < 400; ++link)
    capacity.push_back(static_cast<std::int64_t>(1'000'000 + random.below(1'000'000'000'000)));
  IncrementalMaxMin shares(capacity);
  for (std::uint32_t flow = 0; flow < 1600; ++flow) {
    Path path;
    for (int hop = 0; hop < 3; ++hop)
      path.push_back({static_cast<LinkId>(random.below(capacity.size()))});
    shares.add(flow, path, std::int64_t{1} << 50);
  }
  shares.divide();
  CHECK(shares.computed() < 8 * capacity.size());
}
