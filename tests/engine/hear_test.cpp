// Messages that are counted and not received.
#include <doctest/doctest.h>

#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

Duration end_of(const Trace& trace, ActorId actor, std::uint32_t op) {
  for (const Span& span : trace.spans)
    if (span.actor == actor && span.op == op) return span.end;
  FAIL("no such op");
  return {};
}

constexpr Transfer kNothing{};

// `speakers` send after 10, 20, 30 ... ps and then say the same again, 100 ps apart.
struct Audience {
  MachineBuilder machine;
  ActorId listener{};

  Audience(int speakers, std::uint32_t first, int rounds) {
    std::vector<ActorId> ids;
    for (int s = 0; s < speakers; ++s) {
      ProgramBuilder& speaker = machine.program({"s"});
      for (int round = 0; round < rounds; ++round)
        speaker.compute("think", 0, Duration(round == 0 ? 10 * (s + 1) : 100)).send("say", 0, 0, 0);
      ids.push_back(machine.actor(speaker));
    }
    ProgramBuilder& hears = machine.program({"s"});
    for (std::uint32_t op = 0; op < first * static_cast<std::uint32_t>(rounds); ++op)
      hears.hear("hear", 0, 0);
    listener = machine.actor(hears);
    std::vector<ChannelId> channels;
    for (const ActorId id : ids)
      channels.push_back(machine.channel(id, listener, {kNothing}));
    machine.inbox(channels, first);
  }
};

}  // namespace

TEST_CASE("who hears the first of many waits for nobody else") {
  for (std::uint32_t first = 1; first <= 4; ++first) {
    CAPTURE(first);
    Audience audience(4, first, 1);
    const Trace trace = completed(audience.machine);
    for (std::uint32_t op = 0; op < first; ++op)
      CHECK(end_of(trace, audience.listener, op) == Duration(10 * (op + 1)));
    CHECK(trace.end == Duration(40));  // of the last speaker
  }
}

TEST_CASE("messages of a round do not stand in for those of the next") {
  // Speakers 0 and 1 speak of the second round at 110 and 120, long after all have of the first.
  Audience audience(4, 2, 2);
  const Trace trace = completed(audience.machine);
  CHECK(end_of(trace, audience.listener, 2) == Duration(110));
  CHECK(end_of(trace, audience.listener, 3) == Duration(120));
}

TEST_CASE("a round of which too few speak is a deadlock, and says so") {
  MachineBuilder machine;
  ProgramBuilder& silent = machine.program({"s"});
  silent.compute("think", 0, Duration(1));
  const ActorId speaker = machine.actor(silent);
  ProgramBuilder& hears = machine.program({"s"});
  hears.hear("hear", 0, 0);
  const ActorId listener = machine.actor(hears);
  machine.inbox({machine.channel(speaker, listener, {kNothing})}, 1);
  const Outcome outcome = run(machine.machine());
  REQUIRE(std::holds_alternative<Deadlock>(outcome));
  CHECK(std::get<Deadlock>(outcome).waiting.at(0).why ==
        "'hear' waits for 1 more messages of round 1 of inbox 0");
}
