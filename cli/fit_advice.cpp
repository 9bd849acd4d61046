#include "cli/fit_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/results.h"
#include "sim/json/parse.h"
#include "sim/search/ways_to_fit.h"

namespace trainyard::cli {
namespace {

// Whether the file with these --set has the values in the scenario that is meant.
bool reaches(const ScenarioOptions& options, const std::vector<std::string>& sets,
             const std::string& variant, const simulate::WayToFit& way) {
  ScenarioOptions changed = options;
  changed.sets.insert(changed.sets.end(), sets.begin(), sets.end());
  try {
    const scenario::ScenarioSet set = load(changed, variant);
    const scenario::Scenario& scenario =
        variant.empty() ? set.base : set.variants[variant_index(set, variant)];
    return std::all_of(
        way.changes.begin(), way.changes.end(), [&](const simulate::ChangedValue& change) {
          const json::Value* value = json::find(scenario.document, change.pointer);
          return (value != nullptr ? json::to_text(*value, -1) : "null") == change.to;
        });
  } catch (const ScenarioError&) {
    return false;  // as another step of reading the file sees them
  }
}

// A variant's patch comes after --set and may write the same key, and what one variant can take may
// be wrong for another that is compared with it: then the patch itself is set.
std::vector<std::string> sets_that_reach(const ScenarioOptions& options,
                                         const scenario::Scenario& scenario,
                                         const FitAdvice& advice, const simulate::WayToFit& way) {
  if (advice.alone && reaches(options, way.sets, scenario.variant, way)) return way.sets;
  std::vector<std::string> sets;
  if (scenario.variant.empty()) {
    sets = {"variants=null", "baseline=null"};
    sets.insert(sets.end(), way.sets.begin(), way.sets.end());
    return sets;
  }
  const auto index = std::find(advice.variants.begin(), advice.variants.end(), scenario.variant) -
                     advice.variants.begin();
  for (const std::string& set : way.sets)
    sets.push_back(fmt::format("variants.{}.with.{}", index, set));
  return sets;
}

}  // namespace

void add_ways_to_fit(const ScenarioOptions& options, const scenario::Scenario& scenario,
                     const FitAdvice& advice, Console& console, simulate::StepReport& report) {
  if (report.has_room() || report.deadlock) return;
  if (!scenario.other_jobs.empty()) {
    // What is set in the scenario would change its other jobs as well.
    report.warnings.push_back(
        "ways to fit are searched for a job that is alone: --set other_jobs=null finds them");
    return;
  }
  search::WaysToFitOptions search;
  search.known = advice.known;
  search.machines = advice.machines;
  search.progress = [&](const std::string& text) { console.progress(text); };
  report.ways_to_fit = ways_to_fit(scenario, report, search);
  for (std::vector<simulate::WayToFit>* ways :
       {&report.ways_to_fit->ways, &report.ways_to_fit->closest})
    for (simulate::WayToFit& way : *ways)
      way.sets = sets_that_reach(options, scenario, advice, way);
}

}  // namespace trainyard::cli
