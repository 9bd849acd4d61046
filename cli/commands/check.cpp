#include <fmt/format.h>

#include <set>

#include "cli/commands.h"
#include "cli/report/diagnostics_json.h"
#include "cli/results.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"
#include "sim/search/space.h"
#include "sim/simulate/simulate.h"

namespace trainyard::cli {

namespace {

// What a run would refuse besides: a profile that is wrong, or of another GPU. Variants mostly
// share their profile; its mistakes are said once.
void check_profiles(const scenario::ScenarioSet& set) {
  std::vector<Diagnostic> mistakes;
  std::set<std::string> said;
  simulate::PricedMachines machines;
  const auto check = [&](const scenario::Scenario& scenario) {
    try {
      const simulate::Job job = simulate::job_of(scenario, &machines);
      // Which groups there are is known when the step is laid out.
      if (scenario.collectives != collective::Choices{}) step_of(scenario, job, {.run = false});
    } catch (const ScenarioError& error) {
      for (const Diagnostic& mistake : error.diagnostics())
        if (said.insert(to_text(mistake)).second) mistakes.push_back(mistake);
    }
  };
  if (set.variants.empty()) check(set.base);
  for (const scenario::Scenario& scenario : set.variants)
    check(scenario);
  if (!mistakes.empty()) throw ScenarioError(std::move(mistakes));
}

report::CheckedFile checked(const std::string& path, const CheckOptions& options) {
  try {
    const scenario::ScenarioSet set = load({path, options.sets, options.root});
    std::vector<const scenario::Scenario*> scenarios = {&set.base};
    for (const scenario::Scenario& scenario : set.variants)
      scenarios.push_back(&scenario);
    check_profiles(set);
    if (set.search) search::Space(set, *set.search);
    return {path, true, warnings_of(scenarios)};
  } catch (const ScenarioError& error) {
    return {path, false, error.diagnostics()};
  }
}

}  // namespace

// Every file is checked, so that one run shows all that is wrong.
ExitCode check(const CheckOptions& options, const Context& context) {
  ExitCode code = ExitCode::done;
  std::vector<report::CheckedFile> files;
  for (const std::string& path : options.paths) {
    files.push_back(checked(path, options));
    const report::CheckedFile& file = files.back();
    if (!file.ok) code = ExitCode::invalid_input;
    context.console.diagnostics(file.diagnostics);
    if (file.ok && !options.json)
      context.console.result(fmt::format("{}: OK\n", escape_control(path)));
  }
  if (options.json) context.console.result(report::checked_json(files));
  return code;
}

}  // namespace trainyard::cli
