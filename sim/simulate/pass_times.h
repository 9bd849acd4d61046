// What the passes of a pipeline take on a machine, for schedules that are made from that.
#pragma once

#include <vector>

#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/schedule/schedule.h"

namespace trainyard {

struct PipelineEstimate {
  std::vector<PassTimes> times;  // by stage and part
  // What is left of a stage's memory for activations; never less than those of one micro-batch, so
  // that there is an order to simulate, whether it fits or not.
  Bytes memory_limit = kNoMemoryLimit;
};

// Kernels and tensor-parallel collectives one after another, and the sends by themselves.
// Requires: a plan whose backwards are split.
PipelineEstimate estimate_passes(const StepPlan& plan, const Lowered& lowered);

}  // namespace trainyard
