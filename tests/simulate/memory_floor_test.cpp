// The ledger of memory bounds the engine's peak from below, and is it where one stream alone moves
// memory.
#include "sim/simulate/memory/memory_floor.h"

#include <doctest/doctest.h>

#include <array>

#include "sim/base/random.h"
#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

Bytes peak_of(MachineBuilder& machine, ActorId actor) {
  return completed(machine).peaks[actor].peak;
}

// Ops on `streams` streams in blocks that are called again and again. Of the streams in `movers`
// ops take memory that the same op, or a later one of the compute stream, gives back.
void write_random(SplitMix64& draw, int streams, std::uint32_t movers, ProgramBuilder& program) {
  constexpr std::uint64_t kBlocks = 3;
  program.resident(static_cast<std::int64_t>(draw.below(50)));
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    if (block > 0) program.block();
    std::int64_t held = 0;
    for (int op = 0; op < 8; ++op) {
      const int stream = static_cast<int>(draw.below(static_cast<std::uint64_t>(streams)));
      const std::uint32_t mask =
          static_cast<std::uint32_t>(draw.below(1U << streams)) & ~(1U << stream);
      program.compute("op", stream, Duration(1 + static_cast<std::int64_t>(draw.below(9))), mask);
      if ((movers >> stream & 1U) == 0) continue;
      const auto bytes = 1 + static_cast<std::int64_t>(draw.below(100));
      program.memory(bytes);
      if (draw.below(2) == 0)
        program.memory(-bytes);
      else
        held += bytes;
    }
    // Once all streams are done with it.
    program.compute("end", 0, Duration(1), (1U << streams) - 2);
    if (held > 0) program.memory(-held);
  }
  for (int call = 0; call < 6; ++call)
    program.call(static_cast<std::uint32_t>(draw.below(kBlocks)));
}

}  // namespace

TEST_CASE("no run of a program peaks below its floor, whatever its kernels take") {
  SplitMix64 draw(7);
  int below = 0;
  for (int trial = 0; trial < 500; ++trial) {
    CAPTURE(trial);
    MachineBuilder machine;
    const int streams = 2 + static_cast<int>(draw.below(3));
    ProgramBuilder& program = machine.program({"compute", "one", "two", "three"});
    write_random(draw, streams, 0xF, program);
    const ActorId actor = machine.actor(program);
    const Bytes floor = simulate::least_held(program.program());
    for (int timing = 0; timing < 4; ++timing) {
      const Bytes peak = peak_of(machine, actor);
      CHECK(floor <= peak);
      below += floor < peak ? 1 : 0;
      for (Duration& time : program.times().kernel)
        time = Duration(1 + static_cast<std::int64_t>(draw.below(timing % 2 == 0 ? 100 : 3)));
    }
  }
  CHECK(below > 0);
}

TEST_CASE("where the compute stream alone moves memory, the floor is the peak") {
  SplitMix64 draw(11);
  for (int trial = 0; trial < 200; ++trial) {
    CAPTURE(trial);
    MachineBuilder machine;
    ProgramBuilder& program = machine.program({"compute", "one", "two", "three"});
    write_random(draw, 4, 1, program);
    const ActorId actor = machine.actor(program);
    CHECK(simulate::least_held(program.program()) == peak_of(machine, actor));
  }
}

// What a gather has brought is there when the kernel that waited for it runs; what a copy to the
// host takes away may be gone by then.
TEST_CASE("a floor counts what other streams must have taken, and not what they may give back") {
  MachineBuilder machine;
  ProgramBuilder& program = machine.program({"compute", "gather", "copy"});
  program.compute("gather", 1, Duration(5)).memory(100);
  program.compute("forward", 0, Duration(5), waits({1})).memory(10);
  program.compute("copy", 2, Duration(5), waits({0})).memory(-10);
  program.compute("next", 0, Duration(50)).memory(20).memory(-20);
  program.compute("after the copy", 0, Duration(5), waits({2})).memory(25).memory(-25);
  const ActorId actor = machine.actor(program);
  CHECK(simulate::least_held(program.program()) == Bytes(125));
  CHECK(peak_of(machine, actor) == Bytes(130));
}

TEST_CASE("an op without kernels takes for what comes after it, and holds for no time itself") {
  MachineBuilder machine;
  ProgramBuilder& program = machine.program({"compute"});
  program.kernels("mark", 0, {}).memory(7).memory(100).memory(-100);
  program.compute("kernel", 0, Duration(1)).memory(3).memory(-10);
  const ActorId actor = machine.actor(program);
  CHECK(simulate::least_held(program.program()) == Bytes(10));
  CHECK(peak_of(machine, actor) == Bytes(10));
}
