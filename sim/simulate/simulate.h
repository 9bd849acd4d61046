// One call: scenario in, everything that can be said about its step out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/out_of_range.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/pricing.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/report/timeline.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

struct SimulateOptions {
  bool unfold = false;     // simulate every rank instead of one per class
  bool timeline = true;    // also build the timeline (lanes, memory curves)
  TimelineLimits shown{};  // by the timeline
  bool monitor = false;    // also follow the GPUs of the timeline's ranks; needs `timeline`
  std::optional<Duration> monitor_interval{};  // empty: kMonitorSamples of them
  PricedMachines* machines = nullptr;          // of scenarios of one file; may be null
  bool interval = true;                        // also say how far off estimates like this one are
  bool standing = false;  // no more than standing() says; without effect with `timeline`, and where
                          // GPUs that grow too hot are throttled
};

// A step of that length cannot be seen in samples of that interval: it is longer, or there would be
// more than kMostMonitorSamples.
struct BadMonitorInterval : OutOfRange {
  BadMonitorInterval(Duration interval, Duration step);
};

// A timeline shows at most so many passes of a layer.
inline constexpr std::int64_t kMostTimelinePasses = 1 << 18;
// How many it would show.
std::int64_t timeline_passes(const scenario::Scenario& scenario);

struct Simulation {
  StepReport report;
  Timeline timeline;  // empty unless asked for
};

// The job that a scenario describes, its profile read, or taken from `machines` where that has it
// (null: read). Throws ScenarioError if that file is wrong or was made on another GPU.
Job job_of(const scenario::Scenario& scenario, PricedMachines* machines = nullptr);

// simulate_step of a scenario's job. Throws ScenarioError where an algorithm was chosen that cannot
// carry out one of the job's collectives.
std::unique_ptr<Step> step_of(const scenario::Scenario& scenario, const Job& job,
                              const StepOptions& options);

// Requires: a scenario that load_scenario accepted. Throws what job_of and step_of throw,
// BadMonitorInterval, and ScenarioError where a timeline would be longer than can be shown.
Simulation simulate(const scenario::Scenario& scenario, const SimulateOptions& options = {});

}  // namespace trainyard::simulate
