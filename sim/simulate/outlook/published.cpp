#include "sim/simulate/outlook/published.h"

#include <fmt/format.h>

#include "sim/simulate/report/findings.h"

namespace trainyard::simulate {

std::optional<double> metric_of(const StepReport& report, std::string_view metric) {
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 30); };
  if (metric == "allocated_memory") return gib(report.memory.allocated);
  if (metric == "reserved_memory") return gib(report.memory.reserved);
  if (!report.step_time) return std::nullopt;
  if (metric == "step_time") return seconds(*report.step_time);
  if (metric == "mfu") return report.mfu;
  if (metric == "full_square.mfu") return full_square_mfu(report);
  if (metric == "model_tflops_per_gpu") return report.model_tflops_per_gpu;
  if (metric == "full_square.model_tflops_per_gpu") return report.full_square_tflops_per_gpu;
  if (metric == "gpu_hours" && report.training) return report.training->gpu_hours;
  return std::nullopt;
}

std::string describe(const Published& published) {
  std::string text = fmt::format("{} {:.4g}", published.metric, published.value);
  if (published.predicted) text += fmt::format(", predicted {:.4g}", *published.predicted);
  if (published.predicted && published.value != 0)
    text += fmt::format(" ({:+.1f} %)", 100 * (*published.predicted / published.value - 1));
  return text + ": " + published.label;
}

}  // namespace trainyard::simulate
