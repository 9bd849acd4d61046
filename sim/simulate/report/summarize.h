// Step -> StepReport and Timeline: pure functions of what was simulated.
#pragma once

#include <optional>

#include "sim/simulate/report/shown_ranks.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/report/timeline.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// Everything but the names that only a scenario knows (name, label, description, warnings).
StepReport summarize(const Job& job, const Step& step);

// The part of a summary that says where a step stands among others: how long it takes, what share
// of the peak it reaches, the peak of its memory, and where the time of the slowest rank goes.
StepReport standing(const Job& job, const Step& step);

// The part of that which says only whether it finishes and fits, how long it takes, and the
// peak of its memory (without owners where nothing was recorded).
StepReport outline(const Job& job, const Step& step);

// The GPUs of the timeline's ranks in samples of `interval`, or in kMonitorSamples of them.
// Requires: a step simulated with StepOptions::monitor, an interval that its length holds at most
// kMostMonitorSamples times.
Monitor monitor(const Job& job, const Step& step, const Timeline& timeline,
                std::optional<Duration> interval);

// Lanes of the classes that the limits admit, and their memory. Requires: a step simulated with
// Detail::timeline and these limits, or wider ones.
Timeline timeline(const Step& step, const TimelineLimits& limits);

}  // namespace trainyard::simulate
