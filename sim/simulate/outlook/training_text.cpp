#include "sim/simulate/outlook/training_text.h"

#include <fmt/format.h>

#include "sim/simulate/report/findings.h"

namespace trainyard::simulate {

std::string days_text(double days) {
  if (days >= 2) return fmt::format("{} days", count_text(days));
  if (days * 24 >= 2) return fmt::format("{} hours", count_text(days * 24));
  return fmt::format("{} minutes", count_text(days * 24 * 60));
}

std::string dollars_text(double dollars) {
  return dollars < 1e4 ? fmt::format("${:.2f}", dollars) : "$" + count_text(dollars);
}

std::string energy_text(double kilowatt_hours) {
  if (kilowatt_hours >= 1e6) return count_text(kilowatt_hours / 1e6) + " GWh";
  if (kilowatt_hours >= 1e3) return count_text(kilowatt_hours / 1e3) + " MWh";
  return count_text(kilowatt_hours) + " kWh";
}

std::string describe_training(const StepReport& report) {
  if (!report.training) return "";
  const TrainingTotal& total = *report.training;
  std::string text = total.tokens > 0 ? count_text(total.tokens) + " tokens"
                                      : count_text(total.samples) + " samples";
  text += fmt::format(": {} steps", count_text(total.steps));
  if (!report.step_time) return text;
  return text +
         fmt::format(", {}, {} GPU-hours", days_text(total.days), count_text(total.gpu_hours));
}

std::string describe_price(const StepReport& report) {
  if (!report.training || !report.step_time) return "";
  const TrainingTotal& total = *report.training;
  std::string text;
  if (total.dollars)
    text = fmt::format("{} at {} a GPU-hour", dollars_text(*total.dollars),
                       dollars_text(*total.gpu_hour));
  if (total.kilowatt_hours)
    text += fmt::format("{}{} in the GPUs (analytic)", text.empty() ? "" : "; ",
                        energy_text(*total.kilowatt_hours));
  return text;
}

}  // namespace trainyard::simulate
