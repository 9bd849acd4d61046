#include <doctest/doctest.h>

#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;
using namespace std::chrono_literals;

namespace {

Deadlock stuck(MachineBuilder& m, const RunOptions& options = {}) {
  Outcome outcome = run(m.machine(), options);
  REQUIRE(std::holds_alternative<Deadlock>(outcome));
  return std::get<Deadlock>(std::move(outcome));
}

const std::vector<Transfer> kTransfers = {{.latency = 1ns}, {.latency = 2ns}};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("two ranks that receive before they send wait for each other") {
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.compute("c", 0, 5ns).receive("r", 0, 1, 0).send("s", 0, 0, 0);
  auto& q = m.program({"s"});
  q.receive("r", 0, 0, 0).send("s", 0, 1, 0);
  const ActorId a = m.actor(p), b = m.actor(q);
  m.channel(a, b, kTransfers);
  m.channel(b, a, kTransfers);
  const Deadlock deadlock = stuck(m);
  CHECK(deadlock.at == 5ns);
  CHECK(deadlock.cycle == std::vector<ActorId>{a, b, a});
  REQUIRE(deadlock.waiting.size() == 2);
  CHECK(deadlock.waiting[0].why == "'r' waits for message 1 of channel 1 from actor 1");
  CHECK(deadlock.waiting[1].actor == b);
  CHECK(deadlock.trace.spans.size() == 1);
  CHECK(deadlock.trace.ops == 1);
}

TEST_CASE("two communicators in opposite order wait for each other") {
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.collective("x", 0, 0, 0).collective("y", 0, 1, 0);
  auto& q = m.program({"s"});
  q.collective("y", 0, 1, 0).collective("x", 0, 0, 0);
  const ActorId a = m.actor(p), b = m.actor(q);
  m.communicator({a, b}, kTransfers);
  m.communicator({a, b}, kTransfers);
  const Deadlock deadlock = stuck(m);
  CHECK(deadlock.cycle == std::vector<ActorId>{a, b, a});
  CHECK(deadlock.waiting[0].why ==
        "'x' waits for 1 of 2 members of communicator 0 (first missing: actor 1)");
}

TEST_CASE("a member whose program ends is named, and there is no cycle") {
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.collective("x", 0, 0, 0);
  auto& q = m.program({"s"});
  q.compute("c", 0, 1ns);
  const ActorId a = m.actor(p), b = m.actor(q), c = m.actor(p);
  m.communicator({a, b, c}, kTransfers);
  const Deadlock deadlock = stuck(m);
  CHECK(deadlock.cycle.empty());
  REQUIRE(deadlock.waiting.size() == 2);
  CHECK(deadlock.waiting[1].why ==
        "'x' waits for 1 of 3 members of communicator 0 (first missing: actor 1, whose program "
        "never gets there)");
}

TEST_CASE("members that disagree about a collective are both named") {
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.collective("x", 0, 0, 0).collective("gradients", 0, 0, 0).compute("c", 0, 1ns);
  auto& q = m.program({"s"});
  q.collective("x", 0, 0, 0).collective("weights", 0, 0, 1);
  const ActorId a = m.actor(p), b = m.actor(q);
  m.communicator({a, b}, kTransfers);
  const Deadlock deadlock = stuck(m);
  CHECK(deadlock.waiting[0].why ==
        "'gradients' (transfer 0) is number 2 on communicator 0, where actor 1 has 'weights' "
        "(transfer 1)");
  CHECK(contains(deadlock.waiting[1].why, "'weights' (transfer 1)"));
  CHECK(contains(deadlock.waiting[1].why, "actor 0 has 'gradients'"));
}

TEST_CASE("a message of another size is named whichever side comes first") {
  for (Duration delay : {0ns, 50ns}) {
    MachineBuilder m;
    auto& p = m.program({"s"});
    p.compute("c", 0, delay).send("s", 0, 0, 0);
    auto& q = m.program({"s"});
    q.compute("c", 0, 20ns).receive("r", 0, 0, 1);
    const ActorId a = m.actor(p), b = m.actor(q);
    m.channel(a, b, kTransfers);
    const Deadlock deadlock = stuck(m);
    REQUIRE(deadlock.waiting.size() == 1);
    CHECK(deadlock.waiting[0].why ==
          "'r' expects transfer 1 as message 1 of channel 0, actor 0 sent transfer 0");
  }
}

TEST_CASE("a cycle through several streams lists the actors once") {
  MachineBuilder m;
  auto& p = m.program({"compute", "in", "out"});
  p.receive("r", 1, 0, 0).compute("c", 0, 1ns, waits({1})).send("s", 2, 1, 0, waits({0}));
  std::vector<ActorId> actors;
  for (int i = 0; i < 3; ++i)
    actors.push_back(m.actor(p));
  // Port 0 comes from the previous actor and port 1 goes to the next.
  std::vector<ChannelId> into;
  for (std::size_t i = 0; i < 3; ++i) {
    m.channel(actors[(i + 2) % 3], actors[i], kTransfers);
  }
  for (std::size_t i = 0; i < 3; ++i)
    m[actors[i]].channels = {ChannelId{static_cast<std::uint32_t>(i)},
                             ChannelId{static_cast<std::uint32_t>((i + 1) % 3)}};
  const Deadlock deadlock = stuck(m);
  CHECK(deadlock.waiting.size() == 9);
  CHECK(deadlock.cycle == std::vector<ActorId>{actors[0], actors[2], actors[1], actors[0]});
  CHECK(contains(deadlock.waiting[0].why, "on stream 'in'"));
}

TEST_CASE("too many events at one instant are reported, a long chain of nothing is not") {
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.compute("c", 0, 0ns);
  for (int i = 0; i < 10'000; ++i)
    p.call(0);
  m.actor(p);
  CHECK(completed(m).ops == 10'000);
  RunOptions options;
  options.max_events_per_instant = 1000;
  CHECK(stuck(m, options).at == 0ns);
}
