// Out of memory comes with a cure: the cheapest changes with which the job fits, each simulated by
// the same engine.
//
//   What each knob (sim/search/fit_knobs.h) should come to by itself is told by a sketch of the job
//   (sim/simulate/sketch), and what two come to that do not fit alone by the product of their
//   shares of every category of memory and of the time. From the fastest that should fit on each is
//   sketched by itself and planned; what fits by the ledger of memory (sim/simulate/memory) is
//   simulated. That ends where the next should be slower than the ways that are wanted. Where
//   nothing fits three knobs are put together.
//   Deterministic: the limits are numbers of simulations and of events; what is read and planned
//   for a simulation counts as events, too, and what was simulated for another variant as if it had
//   been simulated again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sim/scenario/scenario.h"
#include "sim/search/known_steps.h"
#include "sim/simulate/pricing.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::search {

struct WaysToFitOptions {
  std::size_t ways = 3;                          // kinds that are wanted
  std::size_t most_surprises = 64;               // read or simulated though they should not fit
  std::uint64_t most_events = 20'000'000;        // of all simulations together
  std::function<void(std::string)> progress{};   // told what is being done
  KnownSteps* known = nullptr;                   // of other variants of the set
  simulate::PricedMachines* machines = nullptr;  // of scenarios of one file; may be null
};

// Requires: `report` is of this scenario, which does not fit and finishes.
simulate::WaysToFit ways_to_fit(const scenario::Scenario& scenario,
                                const simulate::StepReport& report,
                                const WaysToFitOptions& options = {});

}  // namespace trainyard::search
