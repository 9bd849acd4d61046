// A training from one of its steps.
#pragma once

#include <optional>

#include "sim/simulate/report/step_report.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// steps = ceil(samples / global batch); hours = steps x step; GPU-hours = hours x GPUs
// energy = steps x that of a step (step_energy)
// Every step is taken to be like this one: no restarts, no evaluation, no checkpoints. Requires:
// the report has its step time and idle share.
std::optional<TrainingTotal> training_total(const Job& job, const StepReport& report);

// Of all GPUs, by what each rank's step is spent on (monitor/loads.h). Empty unless somebody needs
// it, of a step that runs on GPUs whose power is known. Requires: as above.
std::optional<StepEnergy> step_energy(const Job& job, const Step& step, const StepReport& report);

// Empty unless the job says what servers of its own cost. Requires: the report has its energy.
std::optional<CloudOrOwn> cloud_or_own(const Job& job, const StepReport& report);

}  // namespace trainyard::simulate
