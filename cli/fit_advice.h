// What `run` and `compare` say of a job that does not fit: ways that make it, in words to paste.
#pragma once

#include "cli/commands.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::cli {

// Looks for ways to fit if the report is of a step that runs out of memory, and adds them to it.
// Their --set options change this scenario of the file however it was chosen: those of a variant
// name the variant where they have to; `alone` is false if they must not change other variants.
void add_ways_to_fit(const ScenarioOptions& options, const scenario::Scenario& scenario, bool alone,
                     Console& console, simulate::StepReport& report);

}  // namespace trainyard::cli
