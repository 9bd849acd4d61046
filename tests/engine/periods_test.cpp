// Periods that are skipped against the same run without.
#include <doctest/doctest.h>

#include <bit>
#include <utility>
#include <vector>

#include "tests/engine/random_machine.h"
#include "tests/engine/same_outcome.h"
#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

Outcome without_record(const Machine& machine, bool skip_periods) {
  RunOptions options;
  options.record = Record::nothing;
  options.skip_periods = skip_periods;
  return run(machine, options);
}

}  // namespace

TEST_CASE("a period of hundreds of calls is found") {
  constexpr int kCalls = 501, kTimes = 40;
  MachineBuilder m;
  ProgramBuilder& program = m.program({"compute"});
  for (int block = 0; block < 3; ++block) {
    if (block > 0) program.block();
    program.compute("kernel", 0, {Duration(10)});
  }
  // How many ones there are between zeros in the sequence of Thue and Morse: no part of it comes
  // twice in a row, so that nothing shorter repeats.
  std::vector<std::uint32_t> unit;
  std::uint32_t ones = 0;
  for (std::uint32_t i = 1; unit.size() < kCalls; ++i) {
    if (std::popcount(i) % 2 != 0)
      ++ones;
    else
      unit.push_back(std::exchange(ones, 0));
  }
  for (int time = 0; time < kTimes; ++time)
    for (const std::uint32_t block : unit)
      program.call(block);
  m.actor(program);
  const Outcome quick = without_record(m.machine(), true);
  check_equal(m.machine(), quick, without_record(m.machine(), false));
  CHECK(trace_of(quick).skipped > trace_of(quick).events / 2);
}

TEST_CASE("what repeats is skipped, and nothing but its number of events tells") {
  std::size_t skipped = 0, machines = 0;
  const auto check = [&](std::uint64_t seed, const RandomOptions& options) {
    const auto m = random_machine(seed, options);
    CAPTURE(seed);
    for (const std::int64_t capacity : {0, 100, 2000}) {
      for (const ActorId actor : m->machine().actors.ids())
        (*m)[actor].memory_capacity = Bytes(capacity);
      const Outcome quick = without_record(m->machine(), true);
      const Outcome whole = without_record(m->machine(), false);
      check_equal(m->machine(), quick, whole);
      CHECK(trace_of(whole).skipped == 0);
      skipped += trace_of(quick).skipped > 0 ? 1U : 0U;
      ++machines;
    }
  };
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    check(seed, {.repeats = true, .mistakes = false});
    check(seed, {.launches = false, .repeats = true, .mistakes = false});
    check(seed,
          {.flows = false, .calls = true, .drains = true, .repeats = true, .mistakes = false});
    check(seed, {.repeats = true, .mistakes = true});
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    check(seed, {.flows = false, .repeats = true, .solos = true, .mistakes = false});
  CHECK(skipped > machines / 2);
  MESSAGE(skipped, " of ", machines);
}
