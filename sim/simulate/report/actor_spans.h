// The parts of a trace that belong to one actor.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "sim/engine/trace.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

namespace detail {
template <class Record>
std::span<const Record> of_actor(const std::vector<Record>& records, engine::ActorId actor) {
  const auto [first, last] =
      std::equal_range(records.begin(), records.end(), Record{.actor = actor},
                       [](const Record& a, const Record& b) { return a.actor < b.actor; });
  return {first, last};
}
}  // namespace detail

// Requires: a trace sorted by actor, as the engine gives it. O(log).
inline std::span<const engine::Span> spans_of(const engine::Trace& trace, engine::ActorId actor) {
  return detail::of_actor(trace.spans, actor);
}
inline std::span<const engine::KernelSpan> kernels_of(const engine::Trace& trace,
                                                      engine::ActorId actor) {
  return detail::of_actor(trace.kernels, actor);
}

// Adds the shares of predicted time by basis and the notes of their sources.
void account_basis(const Job& job, const Step& step, StepReport& report);

}  // namespace trainyard::simulate
