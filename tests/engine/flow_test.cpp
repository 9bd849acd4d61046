#include <doctest/doctest.h>

#include <algorithm>

#include "sim/base/random.h"
#include "tests/support/about.h"
#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kGB = 1'000'000'000;
constexpr std::int64_t kNoLimit = 1'000'000 * kGB;

Transfer message(std::int64_t bytes, Duration latency = {}, std::int64_t limit = kNoLimit) {
  return {.latency = latency, .bytes = Bytes(bytes), .rate = limit, .units_taken = 0};
}

// An actor that sends one message after `delay`, to a destination of its own.
struct Sender {
  ChannelId channel;
  ActorId actor;
};
Sender add_sender(MachineBuilder& m, const Transfer& transfer, const Path& path,
                  Duration delay = {}) {
  auto& source = m.program({"s"});
  source.compute("wait", 0, delay).send("send", 0, 0, 0);
  auto& destination = m.program({"s"});
  destination.receive("receive", 0, 0, 0);
  const ActorId a = m.actor(source), b = m.actor(destination);
  return {m.channel(a, b, {transfer}, path), a};
}

}  // namespace

TEST_CASE("n equal flows on one link finish together after n S / C") {
  for (int n = 1; n <= 6; ++n) {
    MachineBuilder m;
    const LinkId link = m.link(12 * kGB);
    for (int i = 0; i < n; ++i)
      add_sender(m, message(1'200'000, 3us), {{link}});
    const Trace trace = completed(m);
    for (Duration finished : trace.finished)
      CHECK(finished == 3us + n * 100us);  // 12 GB/s divides by 1 to 6
  }
}

TEST_CASE("flows of growing size follow processor sharing") {
  // T_k = T_(k-1) + (n - k + 1) (S_k - S_(k-1)) / C
  MachineBuilder m;
  const LinkId link = m.link(12 * kGB);
  std::vector<Sender> senders;
  const std::vector<std::int64_t> sizes = {120'000, 240'000, 240'000, 600'000};
  for (std::int64_t size : sizes)
    senders.push_back(add_sender(m, message(size), {{link}}));
  const Trace trace = completed(m);
  Duration at{};
  std::int64_t before = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const auto share = static_cast<std::int64_t>(sizes.size() - k);
    at += Duration(share * (sizes[k] - before) * 1000 / 12);  // bytes / (12 GB/s) in ps
    before = sizes[k];
    CHECK(trace.finished[senders[k].actor] == at);
  }
}

TEST_CASE("a survivor speeds up and a latecomer slows it down") {
  MachineBuilder m;
  const LinkId link = m.link(1 * kGB);
  const Sender large = add_sender(m, message(3'000'000), {{link}});
  const Sender late = add_sender(m, message(1'000'000), {{link}}, 1ms);
  const Trace trace = completed(m);
  CHECK(trace.finished[late.actor] == 3ms);   // from 1 ms on at half speed
  CHECK(trace.finished[large.actor] == 4ms);  // 1 ms alone, 2 ms at half, 1 ms alone
}

TEST_CASE("a flow alone takes what the closed form says") {
  SplitMix64 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const auto bytes = static_cast<std::int64_t>(random.below(1'000'000'000));
    const auto rate = static_cast<std::int64_t>(1 + random.below(1000 * kGB));
    const Duration latency(static_cast<std::int64_t>(random.below(1'000'000)));
    Trace traces[2];
    for (int flow = 0; flow < 2; ++flow) {
      MachineBuilder m;
      const LinkId link = m.link(1000 * kGB);
      add_sender(m, message(bytes, latency, rate), flow == 1 ? Path{{link}} : Path{});
      traces[flow] = completed(m);
    }
    CHECK(traces[0].end == traces[1].end);
  }
}

TEST_CASE("a collective ends when its slowest path is done") {
  MachineBuilder m;
  const LinkId wide = m.link(10 * kGB), narrow = m.link(2 * kGB);
  auto& p = m.program({"s"});
  p.collective("x", 0, 0, 0).collective("x", 0, 0, 1);
  const ActorId a = m.actor(p), b = m.actor(p);
  m.communicator({a, b}, {message(1'000'000, 1us), message(0, 5us)}, {{{wide}}, {{narrow}}});
  CHECK(completed(m).end == 1us + 500us + 5us);  // without bytes only the latency
}

TEST_CASE("a path of half the load is done before the others, which then have its bandwidth") {
  MachineBuilder m;
  const LinkId link = m.link(12 * kGB);
  auto& program = m.program({"s"});
  program.collective("sum", 0, 0, 0);
  const ActorId a = m.actor(program), b = m.actor(program);
  const CommunicatorId group = m.communicator({a, b}, {message(1'200'000)}, {{{link}}, {{link}}});
  CHECK(completed(m).end == 200us);
  m.machine().communicators[group].loads = {kFullLoad, kFullLoad / 2};
  CHECK(completed(m).end == 150us);
  m.machine().communicators[group].loads = {kFullLoad, 2 * kFullLoad};
  CHECK(completed(m).end == 300us);
}

TEST_CASE("bandwidth is divided once per instant") {
  // All members of 8 rings of 8 begin at once: one reshare for all joins, one when all have ended.
  struct Counting final : Sharing {
    void rates(const IdVector<LinkId, std::int64_t>& capacity, std::span<const Flow> flows,
               std::vector<std::int64_t>& result) const override {
      ++*solves;
      MaxMinSharing().rates(capacity, flows, result);
    }
    int* solves = nullptr;
  };
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.collective("x", 0, 0, 0);
  std::vector<LinkId> links;
  for (int i = 0; i < 64; ++i)
    links.push_back(m.link(1 * kGB));
  for (int ring = 0; ring < 8; ++ring) {
    std::vector<ActorId> members;
    std::vector<Path> paths;
    for (int i = 0; i < 8; ++i) {
      members.push_back(m.actor(p));
      paths.push_back({{links[static_cast<std::size_t>(ring * 8 + i)]}});
    }
    m.communicator(members, {message(1000)}, paths);
  }
  int solves = 0;
  Counting counting;
  counting.solves = &solves;
  RunOptions options;
  options.sharing = &counting;
  CHECK(completed(m, options).end == 1us);
  CHECK(solves == 1);
}

TEST_CASE("k symmetric copies give the integers of one with count k") {
  SplitMix64 random(6);
  for (int trial = 0; trial < 60; ++trial) {
    // `groups` communicators at random times over private and common links; the common ones are
    // crossed by all k copies of a group.
    const int k = 2 + static_cast<int>(random.below(4));
    const int groups = 2 + static_cast<int>(random.below(3));
    std::vector<Duration> delays;
    std::vector<std::int64_t> sizes;
    for (int g = 0; g < groups; ++g) {
      delays.push_back(Duration(static_cast<std::int64_t>(random.below(1000))));
      sizes.push_back(static_cast<std::int64_t>(1 + random.below(100'000)));
    }
    const auto common = static_cast<std::int64_t>(10 * kGB + random.below(10 * kGB));
    const auto own = static_cast<std::int64_t>(kGB + random.below(10 * kGB));
    std::vector<Duration> ends[2];
    for (int unfold = 0; unfold < 2; ++unfold) {
      MachineBuilder m;
      const LinkId shared = m.link(common);
      for (int g = 0; g < groups; ++g) {
        for (int copy = 0; copy < (unfold == 1 ? k : 1); ++copy) {
          const LinkId link = m.link(own);
          const auto times = static_cast<std::size_t>(g);
          const Sender sender = add_sender(m, message(sizes[times], 7ns),
                                           {{link}, {shared, unfold == 1 ? 1 : k}}, delays[times]);
          (void)sender;
        }
      }
      const Trace trace = completed(m);
      for (std::size_t a = 0; a < trace.finished.size(); ++a)
        if (unfold == 0 || (a / 2) % static_cast<std::size_t>(k) == 0)
          ends[unfold].push_back(trace.finished[static_cast<ActorId>(a)]);
      if (unfold == 1)  // all copies end together
        for (std::size_t a = 0; a < trace.finished.size(); ++a)
          CHECK(trace.finished[static_cast<ActorId>(a)] ==
                ends[0][a / 2 / static_cast<std::size_t>(k) * 2 + a % 2]);
    }
    CHECK(ends[0] == ends[1]);
  }
}

namespace {

// Max-min, with a note of every solution: how many flows there were and what each link carried.
class NotingSharing final : public Sharing {
 public:
  struct Solution {
    std::size_t flows = 0;
    std::vector<std::int64_t> load;  // by link, bytes per second
  };
  void rates(const IdVector<LinkId, std::int64_t>& capacity, std::span<const Flow> flows,
             std::vector<std::int64_t>& rates) const override {
    max_min_.rates(capacity, flows, rates);
    if (flows.empty()) return;
    Solution solution{flows.size(), std::vector<std::int64_t>(capacity.size(), 0)};
    for (std::size_t f = 0; f < flows.size(); ++f)
      for (const PathLink& link : flows[f].path)
        solution.load[index(link.link)] += rates[f] * link.count;
    solutions_.push_back(std::move(solution));
  }
  const std::vector<Solution>& solutions() const { return solutions_; }

 private:
  MaxMinSharing max_min_;
  mutable std::vector<Solution> solutions_;
};

}  // namespace

// Little's law.
TEST_CASE(
    "links carry the bytes of the flows that cross them, and flows last as long as they are") {
  SplitMix64 random(15);
  for (int run = 0; run < 50; ++run) {
    CAPTURE(run);
    MachineBuilder m;
    std::vector<LinkId> links;
    std::vector<double> capacity;
    for (int l = 0; l < 4; ++l) {
      const auto size = static_cast<std::int64_t>(1 + random.below(20)) * kGB;
      links.push_back(m.link(size));
      capacity.push_back(static_cast<double>(size));
    }
    std::vector<double> sent(links.size(), 0);  // bytes over each link
    for (int f = 0; f < 12; ++f) {
      const auto bytes = static_cast<std::int64_t>(1'000'000 + random.below(9'000'000));
      const std::size_t first = random.below(4);
      const std::size_t second = (first + 1 + random.below(3)) % 4;
      add_sender(m, message(bytes), {{links[first]}, {links[second]}},
                 std::chrono::microseconds(random.below(500)));
      sent[first] += static_cast<double>(bytes);
      sent[second] += static_cast<double>(bytes);
    }
    const NotingSharing sharing;
    RunOptions options;
    options.sharing = &sharing;
    const Trace trace = completed(m, options);

    std::vector<Duration> instants;  // at which a flow joined or left
    Duration sojourn{};
    for (const Span& span : trace.spans) {
      const Program& program = *m.machine().actors[span.actor].program;
      const Call& call = program.calls[span.call];
      if (program.blocks[call.block].ops[span.op].kind != OpKind::send) continue;
      instants.push_back(span.active);
      instants.push_back(span.end);
      sojourn += span.end - span.active;
    }
    std::sort(instants.begin(), instants.end());
    instants.erase(std::unique(instants.begin(), instants.end()), instants.end());
    REQUIRE(sharing.solutions().size() + 1 >= instants.size());

    // One solution per instant at which flows were left; the network may be empty in between.
    Duration active{};
    std::vector<double> carried(links.size(), 0);
    std::size_t next = 0;
    for (std::size_t i = 0; i + 1 < instants.size(); ++i) {
      const auto going = std::count_if(trace.spans.begin(), trace.spans.end(), [&](const Span& s) {
        const Program& program = *m.machine().actors[s.actor].program;
        return program.op(s.call, s.op).kind == OpKind::send && s.active <= instants[i] &&
               instants[i] < s.end;
      });
      if (going == 0) continue;
      REQUIRE(next < sharing.solutions().size());
      const NotingSharing::Solution& solution = sharing.solutions()[next++];
      CHECK(solution.flows == static_cast<std::size_t>(going));
      const Duration lasts = instants[i + 1] - instants[i];
      active += static_cast<std::int64_t>(solution.flows) * lasts;
      for (std::size_t l = 0; l < links.size(); ++l)
        carried[l] += static_cast<double>(solution.load[l]) * Seconds(lasts).count();
    }
    CHECK(active == sojourn);
    for (std::size_t l = 0; l < links.size(); ++l) {
      CHECK(carried[l] == about(sent[l]).within(1e-7));
      CHECK(Seconds(trace.end).count() >= sent[l] / capacity[l]);
    }
  }
}

// What leaves and comes back within an instant was never away.
TEST_CASE("a flow cut in two at an instant changes nothing for the others") {
  const auto end_of_other = [](bool cut) {
    MachineBuilder m;
    const LinkId link = m.link(12 * kGB);
    auto& source = m.program({"s"});
    if (cut)
      source.send("half", 0, 0, 0).send("half", 0, 0, 0);
    else
      source.send("whole", 0, 0, 1);
    auto& destination = m.program({"s"});
    if (cut)
      destination.receive("half", 0, 0, 0).receive("half", 0, 0, 0);
    else
      destination.receive("whole", 0, 0, 1);
    const ActorId a = m.actor(source), b = m.actor(destination);
    m.channel(a, b, {message(600'000), message(1'200'000)}, {{link}});
    const Sender other = add_sender(m, message(3'000'000), {{link}});
    return completed(m).finished[other.actor];
  };
  CHECK(end_of_other(true) == end_of_other(false));
}
