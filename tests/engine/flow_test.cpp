#include <doctest/doctest.h>

#include "sim/base/random.h"
#include "tests/support/program_builder.h"

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
