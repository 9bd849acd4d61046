// Out of memory comes with a cure: the cheapest changes with which the job fits, each simulated by
// the same engine.
//
//   Each knob (sim/search/fit_knobs.h) by itself. Then two together that do not fit alone, if
//   they should be faster than what is found, or if less than three kinds fit; where still nothing
//   fits three. What several should do is foretold from what each did alone: its share of every
//   category of memory, and of the time, multiplied. What should fit is simulated first.
//   Deterministic: the limits are numbers of simulations and of events; what is read and planned
//   for a simulation counts as events, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sim/scenario/scenario.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::search {

struct WaysToFitOptions {
  std::size_t ways = 3;                         // kinds that are wanted
  std::size_t most_combinations = 128;          // simulated, of two knobs and of three each
  std::uint64_t most_events = 20'000'000;       // of all simulations together
  std::function<void(std::string)> progress{};  // told what is being done
};

// Requires: `report` is of this scenario, which does not fit and finishes.
simulate::WaysToFit ways_to_fit(const scenario::Scenario& scenario,
                                const simulate::StepReport& report,
                                const WaysToFitOptions& options = {});

}  // namespace trainyard::search
