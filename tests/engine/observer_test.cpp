// What an observer is told while a machine runs is what the trace holds at its end.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/engine/peak_owners.h"
#include "tests/engine/random_machine.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

class Listener final : public Observer {
 public:
  void kernel_ended(const KernelSpan& kernel) override { kernels.push_back(kernel); }
  void op_ended(const Span& op) override {
    backwards += !ops.empty() && op.end < ops.back().end;
    late_kernels += std::any_of(kernels.begin(), kernels.end(), [&](const KernelSpan& kernel) {
      return std::tie(kernel.actor, kernel.call, kernel.op) == std::tie(op.actor, op.call, op.op) &&
             kernel.end > op.end;
    });
    ops.push_back(op);
  }

  std::vector<Span> ops;
  std::vector<KernelSpan> kernels;
  int backwards = 0, late_kernels = 0;
};

bool by_place(const Span& a, const Span& b) {
  return std::tie(a.actor, a.call, a.op) < std::tie(b.actor, b.call, b.op);
}

}  // namespace

TEST_CASE("an observer is told of every op once, in the order of their ends") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const auto m = random_machine(seed, {.mistakes = false});
    Trace all = completed(*m, {.record = Record::kernels});
    Listener listener;
    RunOptions options;
    options.record = Record::nothing;
    options.observer = &listener;
    const Trace none = completed(*m, options);
    CHECK(none.spans.empty());
    CHECK(none.kernels.empty());
    CHECK(none.memory.empty());
    CHECK(listener.backwards == 0);
    CHECK(listener.late_kernels == 0);
    std::sort(all.spans.begin(), all.spans.end(), by_place);
    std::sort(listener.ops.begin(), listener.ops.end(), by_place);
    CHECK(listener.ops == all.spans);
    REQUIRE(listener.kernels.size() == all.kernels.size());
    Duration told{}, recorded{};
    for (std::size_t i = 0; i < all.kernels.size(); ++i) {
      told += listener.kernels[i].end - listener.kernels[i].begin;
      recorded += all.kernels[i].end - all.kernels[i].begin;
    }
    CHECK(told == recorded);
  }
}

TEST_CASE("an observer is told of recorded actors only") {
  std::size_t told = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto m = random_machine(seed, {.mistakes = false});
    const std::size_t actors = m->machine().actors.size();
    Listener listener;
    RunOptions options;
    options.record = Record::nothing;
    options.observer = &listener;
    options.recorded.assign(actors, false);
    options.recorded.back() = true;
    const Trace trace = completed(*m, options);
    told += listener.ops.size();
    for (const Span& op : listener.ops)
      CHECK(index(op.actor) + 1 == actors);
    for (std::size_t actor = 0; actor < actors; ++actor)
      CHECK(trace.peaks[static_cast<ActorId>(actor)].ended.empty() == (actor + 1 < actors));
  }
  CHECK(told > 100);
}

TEST_CASE("owners of a peak are what its actor had taken and not given back") {
  int with_memory = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto m = random_machine(seed, {.mistakes = false});
    const Trace trace = completed(*m);
    for (const ActorId actor : m->machine().actors.ids()) {
      const Program& program = *m->machine().actors[actor].program;
      std::map<std::pair<std::uint8_t, std::uint32_t>, std::int64_t> live;
      for (const MemoryEffect& effect : program.resident)
        live[{effect.category, effect.owner}] += effect.bytes;
      const MemoryPeak& peak = trace.peaks[actor];
      if (peak.peak > peak.resident) {
        for (const MemoryChange& change : trace.memory)
          if (change.actor == actor && change.at <= peak.at)
            live[{change.category, change.owner}] += change.bytes;
        ++with_memory;
      }
      std::erase_if(live, [](const auto& each) { return each.second == 0; });
      const std::vector<MemoryChange> owners = owners_of_peak(program, actor, peak);
      CHECK(owners.size() == live.size());
      std::int64_t sum = 0;
      for (const MemoryChange& owner : owners) {
        CHECK(live[{owner.category, owner.owner}] == owner.bytes);
        sum += owner.bytes;
      }
      CHECK(sum == peak.peak.count());
    }
  }
  CHECK(with_memory > 100);
}
