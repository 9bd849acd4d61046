// Periods that are skipped against the same run without.
#include <doctest/doctest.h>

#include "sim/base/hash.h"
#include "tests/engine/random_machine.h"
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

const Trace& trace_of(const Outcome& outcome) {
  if (const auto* memory = std::get_if<OutOfMemory>(&outcome)) return memory->trace;
  if (const auto* deadlock = std::get_if<Deadlock>(&outcome)) return deadlock->trace;
  return std::get<Trace>(outcome);
}

void check_equal(const MemoryPeak& a, const MemoryPeak& b) {
  CHECK(a.peak == b.peak);
  CHECK(a.at == b.at);
  CHECK(a.by_category == b.by_category);
  CHECK(a.resident == b.resident);
  CHECK(a.pooled == b.pooled);
  CHECK(a.at_end == b.at_end);
  CHECK(a.ended == b.ended);
  CHECK(a.running == b.running);
}

void check_equal(const Outcome& skipped, const Outcome& whole) {
  REQUIRE(skipped.index() == whole.index());
  const Trace &a = trace_of(skipped), &b = trace_of(whole);
  CHECK(a.end == b.end);
  CHECK(a.events == b.events);
  CHECK(a.ops == b.ops);
  CHECK(b.skipped == 0);
  for (const ActorId actor : a.finished.ids()) {
    CHECK(a.finished[actor] == b.finished[actor]);
    check_equal(a.peaks[actor], b.peaks[actor]);
  }
  if (const auto* memory = std::get_if<OutOfMemory>(&skipped)) {
    const auto& other = std::get<OutOfMemory>(whole);
    CHECK(memory->actor == other.actor);
    CHECK(memory->needed == other.needed);
    CHECK(memory->owners.size() == other.owners.size());
  }
  if (const auto* deadlock = std::get_if<Deadlock>(&skipped)) {
    const auto& other = std::get<Deadlock>(whole);
    CHECK(deadlock->at == other.at);
    REQUIRE(deadlock->waiting.size() == other.waiting.size());
    for (std::size_t i = 0; i < other.waiting.size(); ++i) {
      CHECK(deadlock->waiting[i].call == other.waiting[i].call);
      CHECK(deadlock->waiting[i].why == other.waiting[i].why);
    }
  }
}

}  // namespace

TEST_CASE("what repeats is skipped, and nothing but its number of events tells") {
  std::size_t skipped = 0, machines = 0;
  const auto check = [&](std::uint64_t seed, const RandomOptions& options) {
    const auto m = random_machine(seed, options);
    CAPTURE(seed);
    for (const std::int64_t capacity : {0, 100, 2000}) {
      for (const ActorId actor : m->machine().actors.ids())
        (*m)[actor].memory_capacity = Bytes(capacity);
      const Outcome quick = without_record(m->machine(), true);
      check_equal(quick, without_record(m->machine(), false));
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
  CHECK(skipped > machines / 2);
  MESSAGE(skipped, " of ", machines);
}
