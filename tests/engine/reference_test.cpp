// The engine against an engine that is too simple to be wrong in the same way.
#include <doctest/doctest.h>

#include "sim/engine/engine.h"
#include "tests/engine/random_machine.h"
#include "tests/support/reference_engine.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

bool operator==(const KernelSpan& a, const KernelSpan& b) {
  return a.actor == b.actor && a.call == b.call && a.op == b.op && a.kernel == b.kernel &&
         a.begin == b.begin && a.end == b.end;
}

struct Tally {
  int complete = 0, stuck = 0;
  std::size_t ops = 0, kernels = 0;
};

void check_agreement(const Machine& machine, Tally& tally) {
  RunOptions options;
  options.record = Record::kernels;
  const Outcome outcome = run(machine, options);
  const ReferenceResult expected = run_reference(machine);
  const auto* deadlock = std::get_if<Deadlock>(&outcome);
  REQUIRE((deadlock == nullptr) == expected.finished);
  REQUIRE_FALSE(std::holds_alternative<OutOfMemory>(outcome));
  const Trace& trace = deadlock != nullptr ? deadlock->trace : std::get<Trace>(outcome);

  REQUIRE(trace.spans.size() == expected.spans.size());
  for (std::size_t i = 0; i < trace.spans.size(); ++i)
    CHECK(trace.spans[i] == expected.spans[i]);
  REQUIRE(trace.kernels.size() == expected.kernels.size());
  for (std::size_t i = 0; i < trace.kernels.size(); ++i)
    CHECK(trace.kernels[i] == expected.kernels[i]);
  for (ActorId actor : machine.actors.ids()) {
    const MemoryPeak& found = trace.peaks[actor];
    const MemoryPeak& peak = expected.peaks[index(actor)];
    CHECK(found.peak == peak.peak);
    CHECK(found.at == peak.at);
    CHECK(found.by_category == peak.by_category);
    CHECK(found.resident == peak.resident);
    CHECK(found.at_end == peak.at_end);
  }
  if (deadlock != nullptr) {
    CHECK(deadlock->at == expected.last);
    REQUIRE(deadlock->waiting.size() == expected.waiting.size());
    for (std::size_t i = 0; i < deadlock->waiting.size(); ++i) {
      CHECK(deadlock->waiting[i].actor == expected.waiting[i].actor);
      CHECK(deadlock->waiting[i].call == expected.waiting[i].call);
      CHECK(deadlock->waiting[i].op == expected.waiting[i].op);
      CHECK(deadlock->waiting[i].why != "");
    }
  } else {
    CHECK(trace.end == expected.last);
  }
  ++(deadlock != nullptr ? tally.stuck : tally.complete);
  tally.ops += trace.spans.size();
  tally.kernels += trace.kernels.size();
}

void check_many(std::uint64_t first, std::uint64_t count, const RandomOptions& options,
                Tally& tally) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    check_agreement(random_machine(seed, options)->machine(), tally);
  }
}

}  // namespace

TEST_CASE("engine and reference agree in every span, kernel, peak and deadlock") {
  Tally tally;
  check_many(0, 1000, {}, tally);
  check_many(10'000, 500, {.flows = false, .launches = false}, tally);
  check_many(20'000, 500, {.slow_downs = false}, tally);
  check_many(30'000, 500, {.mistakes = false}, tally);
  check_many(40'000, 500, {.calls = true}, tally);
  check_many(60'000, 500, {.drains = true}, tally);
  check_many(80'000, 500, {.inboxes = true}, tally);
  // The machines must be worth the comparison.
  CHECK(tally.complete > 2000);
  CHECK(tally.stuck > 50);
  CHECK(tally.ops > 20'000);
  CHECK(tally.kernels > 10'000);
}

TEST_CASE("machines without mistakes complete") {
  for (std::uint64_t seed = 50'000; seed < 50'500; ++seed) {
    CAPTURE(seed);
    const auto machine = random_machine(seed, {.mistakes = false});
    CHECK(std::holds_alternative<Trace>(run(machine->machine())));
  }
}
