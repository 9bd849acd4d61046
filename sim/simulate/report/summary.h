// summary.json and comparison.json. Definitions of the fields: docs/results.md. The bytes depend on
// nothing but the arguments: keys in a fixed order, shortest numbers that read back equal, no
// wall-clock time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/simulate/outlook/speedup.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// One object; its first key names the program's version. With a baseline it also has "baseline" and
// "speedup". indent < 0: one line.
std::string to_json(const StepReport& report, const std::optional<Baseline>& baseline = {},
                    int indent = 2);

// {"name", "baseline", "variants": [object of to_json ...]} in the order given.
// Requires: baseline < reports.size().
std::string compare_json(std::string_view name, std::span<const StepReport> reports,
                         std::size_t baseline, int indent = 2);

}  // namespace trainyard::simulate
