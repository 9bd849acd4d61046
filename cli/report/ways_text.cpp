#include "cli/report/ways_text.h"

#include <fmt/format.h>

#include "cli/report/facts.h"
#include "sim/base/text.h"

namespace trainyard {
namespace {

// A word without its quotes; numbers and true as they are.
std::string bare(const std::string& json) {
  return json.size() >= 2 && json.front() == '"' ? json.substr(1, json.size() - 2) : json;
}

// "+12.3 %" against what the job would take.
std::string change_text(const StepReport& report, const WayToFit& way) {
  const double before = seconds(report.simulated_step);
  return before > 0 ? fmt::format("{:+.1f} %", (seconds(way.step_time) / before - 1) * 100) : "";
}

std::string cost_text(const StepReport& report, const WayToFit& way) {
  return fmt::format("{} a step ({})", to_text(way.step_time), change_text(report, way));
}

std::string set_options(const WayToFit& way) {
  std::string text;
  for (const std::string& set : way.sets)
    text += fmt::format("{}--set {}", text.empty() ? "" : " ", escape_control(set));
  return text;
}

std::string memory_text(const StepReport& report, const WayToFit& way) {
  const MemoryReport& memory = report.memory;
  return fmt::format("saves {}: {} of {}", to_text(memory.peak - way.peak), to_text(way.peak),
                     to_text(memory.capacity));
}

std::string missing_text(const StepReport& report, const WayToFit& way) {
  return fmt::format("{} of {}, {} too much", to_text(way.peak), to_text(report.memory.capacity),
                     to_text(way.peak - report.memory.capacity));
}

std::string nothing_text(const WaysToFit& found) {
  if (found.simulated == 0 && found.cut_short)
    return "Ways to fit were not looked for: the step is too large to simulate again and again.";
  if (found.simulated == 0) return "No way to fit is known: there is nothing left to change.";
  return fmt::format("Nothing that was tried fits ({} change{} simulated{}).", found.simulated,
                     found.simulated == 1 ? "" : "s",
                     found.cut_short ? ", less than could be" : "");
}

}  // namespace

std::string describe(const WayToFit& way) {
  std::string text;
  for (const ChangedValue& change : way.changes)
    if (!change.what.empty())
      text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", change.what,
                          escape_control(bare(change.from)), bare(change.to));
  return text;
}

std::string ways_to_fit_text(const StepReport& report) {
  if (!report.ways_to_fit) return "";
  const WaysToFit& found = *report.ways_to_fit;
  std::string text = "\n";
  if (found.ways.empty()) {
    text += nothing_text(found) + "\n";
    for (const WayToFit& way : found.closest)
      text += fmt::format("Closest: {}\n     {}; {}\n     {}\n", describe(way),
                          missing_text(report, way), cost_text(report, way), set_options(way));
    return text;
  }
  text += fmt::format("Cheapest ways to fit, of {} simulated{}; as it is the step would take {}\n",
                      found.simulated, found.cut_short ? " (less than could be)" : "",
                      to_text(report.simulated_step));
  for (std::size_t i = 0; i < found.ways.size(); ++i) {
    const WayToFit& way = found.ways[i];
    text += fmt::format("  {}. {}\n     {}; {}\n     {}\n", i + 1, describe(way),
                        memory_text(report, way), cost_text(report, way), set_options(way));
  }
  return text;
}

std::string short_ways_to_fit_text(const StepReport& report) {
  if (!report.ways_to_fit) return "";
  const WaysToFit& found = *report.ways_to_fit;
  std::string text;
  for (const WayToFit& way : found.ways)
    text += fmt::format("  fits with {}: {}; {}\n    {}\n", describe(way), to_text(way.peak),
                        cost_text(report, way), set_options(way));
  if (!found.ways.empty()) return text;
  text += fmt::format("  {}\n", nothing_text(found));
  for (const WayToFit& way : found.closest)
    text += fmt::format("  closest: {}: {}\n", describe(way), missing_text(report, way));
  return text;
}

}  // namespace trainyard
