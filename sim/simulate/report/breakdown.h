// Where the time of one rank went: every picosecond of the step in one category, decided from the
// trace.
#pragma once

#include <span>

#include "sim/engine/trace.h"
#include "sim/plan/step_plan.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// `spans` and `kernels` are those of one actor, which runs `stage`; they are sorted as a Trace
// sorts them. For every instant the first that applies: a kernel runs; the compute stream waits for
// a transfer of its own that is in flight; its next kernel is not yet issued by the host; it waits
// for another rank. After the actor's last op it waits for the others until `end`.
//   Invariant: the sum is `end`, never made so by a remainder.
Breakdown breakdown(const plan::Role& stage, std::span<const engine::Span> spans,
                    std::span<const engine::KernelSpan> kernels, Duration end);

}  // namespace trainyard::simulate
