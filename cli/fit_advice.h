// What `run` and `compare` say of a job that does not fit: ways that make it, in words to paste.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"
#include "sim/scenario/scenario.h"
#include "sim/search/known_steps.h"
#include "sim/simulate/pricing.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::cli {

struct FitAdvice {
  std::vector<std::string> variants{};  // of the file, by number
  bool alone = true;                    // no other variant of it is simulated
  // What variants of a file share; nullptr: there is one.
  search::KnownSteps* known = nullptr;
  simulate::PricedMachines* machines = nullptr;
};

// Looks for ways to fit if the report is of a step that runs out of memory, and adds them to it.
// Their --set options change this scenario of the file however it was chosen: those of a variant
// name the variant where they have to.
void add_ways_to_fit(const ScenarioOptions& options, const scenario::Scenario& scenario,
                     const FitAdvice& advice, Console& console, simulate::StepReport& report);

}  // namespace trainyard::cli
