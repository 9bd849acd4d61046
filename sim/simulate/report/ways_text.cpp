#include "sim/simulate/report/ways_text.h"

#include <fmt/format.h>

#include "sim/base/text.h"
#include "sim/simulate/report/findings.h"

namespace trainyard::simulate {
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
  return fmt::format("saves {}: {} of {}", to_text(memory.wanted - way.peak), to_text(way.peak),
                     to_text(memory.capacity));
}

std::string missing_text(const StepReport& report, const WayToFit& way) {
  return fmt::format("{} of {}, {} too much", to_text(way.peak), to_text(report.memory.capacity),
                     to_text(way.peak - report.memory.capacity));
}

std::string nothing_text(const WaysToFit& found) {
  if (found.simulated == 0 && found.cut_short)
    return "Ways to fit were not looked for: the step is too large.";
  if (found.simulated == 0) return "No way to fit is known: there is nothing left to change.";
  return fmt::format("Nothing that was tried fits ({} change{} simulated{}).", found.simulated,
                     found.simulated == 1 ? "" : "s",
                     found.cut_short ? ", less than could be" : "");
}

std::string untried_text(const WaysToFit& found) {
  return found.untried.empty() ? "" : found.untried + "\n";
}

// "recomputation none -> full": the changes that are not only there for another.
std::vector<std::string> words_of(const WayToFit& way) {
  std::vector<std::string> words;
  for (const ChangedValue& change : way.changes)
    if (!change.what.empty())
      words.push_back(fmt::format("{} {} -> {}", change.what, escape_control(bare(change.from)),
                                  escape_control(bare(change.to))));
  return words;
}

// What is changed in lines of the terminal's width, `facts`, and a line that is pasted whole.
std::string entry(const std::string& begin, const WayToFit& way, const std::string& facts) {
  constexpr std::size_t kColumns = 80;
  std::string text, line = begin;
  for (const std::string& words : words_of(way)) {
    const bool first = line.size() == begin.size() && text.empty();
    if (!first && line.size() + words.size() + 3 > kColumns) {
      text += line + ",\n";
      line = "     " + words;
    } else {
      line += (first ? "" : ", ") + words;
    }
  }
  return fmt::format("{}{}\n     {}\n     {}\n", text, line, facts, set_options(way));
}

}  // namespace

std::string describe(const WayToFit& way) {
  return fmt::format("{}", fmt::join(words_of(way), ", "));
}

std::string ways_to_fit_text(const StepReport& report) {
  if (!report.ways_to_fit) return "";
  const WaysToFit& found = *report.ways_to_fit;
  if (found.ways.empty()) {
    std::string text = fmt::format("\n{}\n", nothing_text(found));
    for (const WayToFit& way : found.closest)
      text += entry("Closest: ", way,
                    fmt::format("{}; {}", missing_text(report, way), cost_text(report, way)));
    return text + untried_text(found);
  }
  std::string text =
      fmt::format("\nCheapest ways to fit, of {} simulated; as it is a step would take {}\n",
                  found.simulated, to_text(report.simulated_step));
  if (found.cut_short) text += "(There are more that were not: the step is large.)\n";
  for (std::size_t i = 0; i < found.ways.size(); ++i)
    text += entry(fmt::format("  {}. ", i + 1), found.ways[i],
                  fmt::format("{}; {}", memory_text(report, found.ways[i]),
                              cost_text(report, found.ways[i])));
  return text + untried_text(found);
}

std::string short_ways_to_fit_text(const StepReport& report) {
  if (!report.ways_to_fit) return "";
  const WaysToFit& found = *report.ways_to_fit;
  std::string text;
  for (const WayToFit& way : found.ways)
    text += entry("  fits with ", way,
                  fmt::format("{}; {}", to_text(way.peak), cost_text(report, way)));
  if (!found.ways.empty()) return text;
  text += fmt::format("  {}\n", nothing_text(found));
  if (!found.untried.empty()) text += fmt::format("  {}\n", found.untried);
  for (const WayToFit& way : found.closest)
    text += entry("  closest: ", way, missing_text(report, way));
  return text;
}

}  // namespace trainyard::simulate
