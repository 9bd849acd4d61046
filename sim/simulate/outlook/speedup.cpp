#include "sim/simulate/outlook/speedup.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "sim/simulate/report/findings.h"

namespace trainyard::simulate {

double StepWork::over(const StepWork& other) const {
  if (tokens > 0 && other.tokens > 0) return tokens / other.tokens;
  return samples > 0 && other.samples > 0 ? samples / other.samples : 1;
}

namespace {

StepWork work_of_step(const StepReport& report, bool tokens) {
  const double samples = report.counted * static_cast<double>(report.global_batch);
  const auto length = static_cast<double>(report.sequence_length);
  return {samples, tokens && report.is_language ? samples * length : 0};
}

}  // namespace

bool compares_tokens(std::span<const StepReport> reports) {
  return std::all_of(reports.begin(), reports.end(), [](const StepReport& report) {
    return report.is_language || !report.step_time;
  });
}

Baseline baseline_of(const StepReport& report, bool tokens) {
  return {label_of(report), report.step_time, work_of_step(report, tokens)};
}

Baseline baseline_of(std::span<const StepReport> reports, std::size_t baseline) {
  return baseline_of(reports[baseline], compares_tokens(reports));
}

std::vector<std::size_t> fastest_first(std::span<const StepReport> reports) {
  std::vector<std::size_t> order(reports.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const bool tokens = compares_tokens(reports);
  const auto runs = std::find_if(reports.begin(), reports.end(), [](const StepReport& report) {
    return report.step_time.has_value();
  });
  if (runs == reports.end()) return order;
  // For as much work as that one has; of equal works step times alone decide.
  const StepWork unit = work_of_step(*runs, tokens);
  std::vector<double> times;
  for (const StepReport& report : reports) {
    const double work = work_of_step(report, tokens).over(unit);
    times.push_back(report.step_time ? seconds(*report.step_time) / work
                                     : std::numeric_limits<double>::infinity());
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
  return order;
}

std::optional<double> speedup(const StepReport& report, const Baseline& baseline) {
  if (!report.step_time || !baseline.step_time || report.step_time->count() == 0)
    return std::nullopt;
  return seconds(*baseline.step_time) / seconds(*report.step_time) *
         work_of_step(report, true).over(baseline.work);
}

}  // namespace trainyard::simulate
