// One call: scenario in, everything that can be said about its step out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/report/timeline.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

struct SimulateOptions {
  bool unfold = false;      // simulate every rank instead of one per class
  bool timeline = true;     // also build the timeline (lanes, memory curves)
  int timeline_ranks = 64;  // at most so many ranks are shown, spread over the stages
};

struct Simulation {
  StepReport report;
  Timeline timeline;  // empty unless asked for
};

// The job that a scenario describes, its profile read. Throws ScenarioError if that file is wrong
// or was made on another GPU.
Job job_of(const scenario::Scenario& scenario);

// simulate_step of a scenario's job. Throws ScenarioError where an algorithm was chosen that cannot
// carry out one of the job's collectives.
std::unique_ptr<Step> step_of(const scenario::Scenario& scenario, const Job& job,
                              const StepOptions& options);

// Requires: a scenario that load_scenario accepted. Throws what job_of and step_of throw.
Simulation simulate(const scenario::Scenario& scenario, const SimulateOptions& options = {});

}  // namespace trainyard::simulate
