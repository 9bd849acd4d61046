#include "sim/simulate/outlook/training_text.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

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

std::string years_text(double years) {
  return years < 2 ? count_text(12 * years) + " months" : count_text(years) + " years";
}

std::string joules_text(double joules) {
  for (const auto& [scale, unit] :
       {std::pair(1e9, "GJ"), std::pair(1e6, "MJ"), std::pair(1e3, "kJ")})
    if (joules >= scale) return fmt::format("{} {}", count_text(joules / scale), unit);
  return joules < 1 ? count_text(1e3 * joules) + " mJ" : count_text(joules) + " J";
}

std::string describe_energy(const StepEnergy& energy) {
  const bool tokens = energy.joules_per_token.has_value();
  std::string text =
      fmt::format("{} a step, {} a {}; {:.0f} W a GPU (analytic)", joules_text(energy.joules),
                  joules_text(tokens ? *energy.joules_per_token : energy.joules_per_sample),
                  tokens ? "token" : "sample", energy.watts);
  if (energy.celsius) text += fmt::format(", {:.0f} C", *energy.celsius);
  return text;
}

std::vector<std::string> describe_cloud_or_own(const CloudOrOwn& found) {
  const double purchase = found.own_gpu_hour - found.energy - found.fixed;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("own {} a GPU-hour, rented {}", dollars_text(found.own_gpu_hour),
                              dollars_text(found.cloud_gpu_hour)));
  lines.push_back(fmt::format("own: {} purchase, {} electricity, {} hosting and staff",
                              dollars_text(purchase), dollars_text(found.energy),
                              dollars_text(found.fixed)));
  if (!found.break_even_hours) {
    lines.push_back("own never pays: an hour of it costs more than a rented one");
    return lines;
  }
  const std::string years = years_text(found.years);
  lines.push_back(fmt::format(
      "own pays after {} ({} hours of training){}", years_text(*found.break_even_years),
      count_text(*found.break_even_hours), found.own_is_cheaper ? "" : ", beyond its " + years));
  lines.push_back(found.least_utilisation ? fmt::format("in {} it pays from {} of use on", years,
                                                        percent_text(*found.least_utilisation))
                                          : fmt::format("in {} it pays at no use", years));
  return lines;
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
