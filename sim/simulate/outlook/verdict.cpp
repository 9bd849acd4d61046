#include "sim/simulate/outlook/verdict.h"

#include <fmt/format.h>

#include "sim/base/text.h"
#include "sim/simulate/outlook/training_text.h"
#include "sim/simulate/report/findings.h"
#include "sim/simulate/report/ways_text.h"

namespace trainyard::simulate {

namespace {

// Share of a published peak by which predictions of it are off: the median of the two sets of
// docs/validation.md that it is least of.
constexpr double kErrorOfPeaks = 0.05;

std::string why_not(const StepReport& report) {
  std::string text = why_no_time(report);
  if (text.empty()) return "The step has no time.";
  text = report.deadlock ? "Never finishes" : "D" + text.substr(1);
  if (report.deadlock || !report.ways_to_fit) return text + ".";
  if (report.ways_to_fit->ways.empty()) return text + ", and nothing that was tried makes it fit.";
  const WayToFit& way = report.ways_to_fit->ways.front();
  return text + fmt::format("; the cheapest way to fit is {} ({} a step).", describe(way),
                            to_text(way.step_time));
}

std::string how_it_fits(const MemoryReport& memory) {
  if (memory.is_tight)
    return fmt::format("Tight, it would hold {} of {}", to_text(memory.wanted),
                       to_text(memory.capacity));
  const Bytes spare = memory.capacity - memory.peak;
  const bool is_narrow = static_cast<double>(spare.count()) <
                         kErrorOfPeaks * static_cast<double>(memory.capacity.count());
  return fmt::format("Fits with {} to spare{}", to_text(spare),
                     is_narrow ? ", less than predicted peaks are off by" : "");
}

}  // namespace

std::string verdict(const StepReport& report) {
  if (!report.step_time) return why_not(report);
  std::string text =
      fmt::format("{}: a step takes {}{}", how_it_fits(report.memory),
                  report.memory.is_tight ? "at least " : "", to_text(*report.step_time));
  const char* most = report.memory.is_tight ? "at most " : "";
  text += report.is_language
              ? fmt::format(", {}{} tokens/s", most, count_text(report.tokens_per_s))
              : fmt::format(", {}{} samples/s", most, count_text(report.samples_per_s));
  if (report.mfu > 0) text += fmt::format(" at {} MFU", percent_text(report.mfu));
  if (!report.training) return text + ".";
  const TrainingTotal& total = *report.training;
  text +=
      fmt::format("; {} {} take {}{}", count_text(total.tokens > 0 ? total.tokens : total.samples),
                  total.tokens > 0 ? "tokens" : "samples",
                  report.memory.is_tight ? "at least " : "", days_text(total.days));
  if (total.dollars) text += " and " + dollars_text(*total.dollars);
  return text + ".";
}

std::string costliest(const StepReport& report) {
  const std::vector<Finding> list = findings(report, 1);
  if (list.empty()) return "";
  std::string text = list.front().text;
  if (!report.training || !report.step_time) return text;
  const TrainingTotal& total = *report.training;
  text += fmt::format(" That is {} of the training", days_text(list.front().share * total.days));
  if (total.dollars) text += " and " + dollars_text(list.front().share * *total.dollars);
  return text + ".";
}

}  // namespace trainyard::simulate
