// A training from one of its steps.
#pragma once

#include <optional>

#include "sim/simulate/report/step_report.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// steps = ceil(samples / global batch); hours = steps x step; GPU-hours = hours x GPUs
// energy = GPU-hours x (idle + (busy - idle) x share of the step during which kernels run)
// Every step is taken to be like this one: no restarts, no evaluation, no checkpoints. Requires:
// the report has its step time and idle share.
std::optional<TrainingTotal> training_total(const Job& job, const StepReport& report);

}  // namespace trainyard::simulate
