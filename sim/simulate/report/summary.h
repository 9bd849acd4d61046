// summary.json and comparison.json. Definitions of the fields: docs/results.md. The bytes depend on
// nothing but the arguments: keys in a fixed order, shortest numbers that read back equal, no
// wall-clock time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// What a step gets done: samples whose gradients are used, and of a language model their tokens.
struct StepWork {
  double samples = 0, tokens = 0;  // 0: not known; no language model
  // This over the other: of tokens if both have them, and 1 where either is not known.
  double over(const StepWork& other) const;
};
StepWork work_of(const StepReport& report);

// What a variant is compared with.
struct Baseline {
  std::string name;
  std::optional<Duration> step_time;
  StepWork work{};
};
Baseline baseline_of(const StepReport& report);

// How much sooner the variant gets as much done as the baseline: step time of the baseline over its
// own, times its work over the baseline's. Empty if either has no step time.
std::optional<double> speedup(const StepReport& report, const Baseline& baseline);

// Those that get most done a second first, then those without a step time; equal ones in order.
std::vector<std::size_t> fastest_first(std::span<const StepReport> reports);

// One object; its first key names the program's version. With a baseline it also has "baseline" and
// "speedup". indent < 0: one line.
std::string to_json(const StepReport& report, const std::optional<Baseline>& baseline = {},
                    int indent = 2);

// {"name", "baseline", "variants": [object of to_json ...]} in the order given.
// Requires: baseline < reports.size().
std::string compare_json(std::string_view name, std::span<const StepReport> reports,
                         std::size_t baseline, int indent = 2);

}  // namespace trainyard::simulate
