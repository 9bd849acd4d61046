// Published numbers beside predicted ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// The report's value of a metric of /references: "step_time" (s), "mfu", "model_tflops_per_gpu",
// both also as "full_square.mfu" and so on, "gpu_hours", "allocated_memory", "reserved_memory"
// (GiB). Nothing where the metric is another, or the step has none.
std::optional<double> metric_of(const StepReport& report, std::string_view metric);

// "full_square.mfu 0.41 (label); predicted 0.394, -3.9 %".
std::string describe(const Published& published);

}  // namespace trainyard::simulate
