#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/text.h"
#include "sim/base/text.h"
#include "sim/simulate/outlook/training_text.h"
#include "sim/simulate/report/findings.h"

namespace trainyard::report {

namespace {

constexpr int kRows = 8, kBar = 22;

std::string years(const std::optional<double>& after) {
  return after ? simulate::years_text(*after) : "never";
}

std::string bar(double value, double most, char mark) {
  return std::string(static_cast<std::size_t>(std::lround(value / most * kBar)), mark);
}

}  // namespace

std::string cloud_or_own_text(const simulate::StepReport& report) {
  if (!report.cloud_or_own) return "";
  const simulate::CloudOrOwn& c = *report.cloud_or_own;
  std::string text = "\nCloud or own, for one GPU\n";
  text +=
      fmt::format("  {:<10}{:>14}{:>14}   {}\n", "trains", "own GPU-hour", "cloud", "pays after");
  for (const simulate::OwnAtUse& use : c.by_use)
    text += fmt::format("  {:<10}{:>14}{:>14}   {}{}\n", simulate::percent_text(use.utilisation),
                        simulate::dollars_text(use.gpu_hour),
                        simulate::dollars_text(c.cloud_gpu_hour), years(use.break_even_years),
                        use.utilisation == c.utilisation ? "  <- this scenario" : "");
  double most = 0;
  for (const simulate::SpentBy& point : c.curve)
    most = std::max({most, point.cloud, point.own});
  text += fmt::format("  {:<10}{:>11}{:>11}   spent: c cloud, o own\n", "after", "cloud", "own");
  for (int row = 0; row <= kRows; ++row) {
    const auto at = static_cast<std::size_t>(row) * (c.curve.size() - 1) / kRows;
    const simulate::SpentBy& point = c.curve[at];
    text +=
        fmt::format("  {:<10}{:>11}{:>11}   {:<{}} {}\n", fmt::format("{:.1f} years", point.years),
                    simulate::dollars_text(point.cloud), simulate::dollars_text(point.own),
                    bar(point.cloud, most, 'c'), kBar, bar(point.own, most, 'o'));
  }
  return text;
}

}  // namespace trainyard::report
