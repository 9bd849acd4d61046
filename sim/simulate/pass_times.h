// What the passes of a pipeline take on a machine, for schedules that are made from that.
#pragma once

#include <vector>

#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/schedule/schedule.h"

namespace trainyard::simulate {

struct PipelineEstimate {
  std::vector<schedule::PassTimes> times;  // by stage and part
  // By stage, what is left of its memory for activations; never less than those of one micro-batch,
  // so that there is an order to simulate, whether it fits or not.
  std::vector<Bytes> memory_limits;
};

// Kernels and tensor-parallel collectives one after another, and the sends by themselves.
// Requires: a plan whose backwards are split.
PipelineEstimate estimate_passes(const plan::StepPlan& plan, const lower::Lowered& lowered);

}  // namespace trainyard::simulate
