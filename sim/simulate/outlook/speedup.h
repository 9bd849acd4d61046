// How variants compare: by what they get done a second.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// What a step gets done: samples whose gradients are used, and of a language model their tokens.
struct StepWork {
  double samples = 0, tokens = 0;  // 0: not known; no language model
  // This over the other: of tokens if both have them, and 1 where either is not known.
  double over(const StepWork& other) const;
};

// Whether all that run are language models, so that they are compared by tokens.
bool compares_tokens(std::span<const StepReport> reports);

// What a variant is compared with.
struct Baseline {
  std::string name;
  std::optional<Duration> step_time;
  StepWork work{};
};
// `tokens`: whether it is compared by these.
Baseline baseline_of(const StepReport& report, bool tokens = true);
// One of a comparison. Requires: baseline < reports.size().
Baseline baseline_of(std::span<const StepReport> reports, std::size_t baseline);

// How much sooner the variant gets as much done as the baseline: step time of the baseline over its
// own, times its work over the baseline's. Empty if either has no step time.
std::optional<double> speedup(const StepReport& report, const Baseline& baseline);

// Those that get most done a second first, then those without a step time; equal ones in order.
std::vector<std::size_t> fastest_first(std::span<const StepReport> reports);

}  // namespace trainyard::simulate
