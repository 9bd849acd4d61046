// Two runs of one machine that have to come to the same.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/peak_owners.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {

// Op by op, but for solos if they are asked for.
inline engine::Outcome run_solos(const engine::Machine& machine, bool solos,
                                 engine::Observer* observer = nullptr) {
  engine::RunOptions options;
  options.record = engine::Record::nothing;
  options.skip_periods = false;
  options.only_kernels_host_may_hold = true;
  options.observer = observer;
  options.solos = solos;
  return engine::run(machine, options);
}

inline const Trace& trace_of(const Outcome& outcome) {
  if (const auto* memory = std::get_if<OutOfMemory>(&outcome)) return memory->trace;
  if (const auto* deadlock = std::get_if<Deadlock>(&outcome)) return deadlock->trace;
  return std::get<Trace>(outcome);
}

inline std::vector<std::tuple<std::uint8_t, std::uint32_t, std::int64_t>> bytes(
    const std::vector<MemoryChange>& owners) {
  std::vector<std::tuple<std::uint8_t, std::uint32_t, std::int64_t>> bytes;
  for (const MemoryChange& owner : owners)
    bytes.emplace_back(owner.category, owner.owner, owner.bytes);
  return bytes;
}

inline void check_equal(const MemoryPeak& a, const MemoryPeak& b) {
  CHECK(a.peak == b.peak);
  CHECK(a.at == b.at);
  CHECK(a.by_category == b.by_category);
  CHECK(a.resident == b.resident);
  CHECK(a.pooled == b.pooled);
  CHECK(a.at_end == b.at_end);
  CHECK(a.ended.size() == b.ended.size());
}

// Of a run of the machine.
inline void check_equal(const engine::Machine& machine, const Outcome& one, const Outcome& other) {
  REQUIRE(one.index() == other.index());
  const Trace &a = trace_of(one), &b = trace_of(other);
  CHECK(a.end == b.end);
  CHECK(a.events == b.events);
  CHECK(a.ops == b.ops);
  for (const ActorId actor : a.finished.ids()) {
    CHECK(a.finished[actor] == b.finished[actor]);
    check_equal(a.peaks[actor], b.peaks[actor]);
    if (a.peaks[actor].ended.empty()) continue;
    const Program& program = *machine.actors[actor].program;
    CHECK(bytes(owners_of_peak(program, actor, a.peaks[actor])) ==
          bytes(owners_of_peak(program, actor, b.peaks[actor])));
  }
  if (const auto* memory = std::get_if<OutOfMemory>(&one)) {
    const auto& whole = std::get<OutOfMemory>(other);
    CHECK(memory->actor == whole.actor);
    CHECK(memory->needed == whole.needed);
    CHECK(memory->owners.size() == whole.owners.size());
  }
  if (const auto* deadlock = std::get_if<Deadlock>(&one)) {
    const auto& whole = std::get<Deadlock>(other);
    CHECK(deadlock->at == whole.at);
    REQUIRE(deadlock->waiting.size() == whole.waiting.size());
    for (std::size_t i = 0; i < whole.waiting.size(); ++i) {
      CHECK(deadlock->waiting[i].call == whole.waiting[i].call);
      CHECK(deadlock->waiting[i].why == whole.waiting[i].why);
    }
  }
}

}  // namespace trainyard::testing
