// A division of the work to start from, for those who have a network, GPUs and nothing else.
//
//   Degrees of tensor and pipeline parallelism in the order of their product, each with the ways of
//   dividing replicas, without recomputation and then with it, until a product fits without; one
//   product more, as it may be faster. The fastest that fits then takes larger micro-batches, each
//   divisor of a replica's batch, while that is faster. Where none fits, ways to fit
//   (ways_to_fit.h) go on from what comes closest.
//   Deterministic: the limits are numbers of simulations and of events.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sim/json/value.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::search {

// A merge patch of the scenario that was searched from, and what simulating it gave.
struct PlanTrial {
  json::Value patch;
  simulate::StepReport outline;
};

struct FirstPlan {
  std::optional<PlanTrial> best;     // empty: nothing fits
  std::optional<PlanTrial> closest;  // if nothing fits: what peaks lowest
  int simulated = 0;
};

struct FirstPlanOptions {
  int most_trials = 160;
  std::uint64_t most_events = 40'000'000;  // of all simulations together
  std::function<void(std::string)> progress{};
};

// Requires: `start` has no parallelism of its own, so that dp is the number of its GPUs.
FirstPlan first_plan(const scenario::Scenario& start, const FirstPlanOptions& options = {});

}  // namespace trainyard::search
