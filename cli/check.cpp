#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/results.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {

// Every file is checked, so that one run shows all that is wrong.
ExitCode check(const CheckOptions& options, const Context& context) {
  ExitCode code = ExitCode::done;
  for (const std::string& path : options.paths) {
    try {
      const ScenarioSet set = load_scenario(path, options.sets);
      std::vector<const Scenario*> scenarios = {&set.base};
      for (const Scenario& scenario : set.variants)
        scenarios.push_back(&scenario);
      print_warnings(scenarios, context.console);
      context.console.result(fmt::format("{}: OK\n", escape_control(path)));
    } catch (const ScenarioError& error) {
      context.console.diagnostics(error.diagnostics());
      code = ExitCode::invalid_input;
    }
  }
  return code;
}

}  // namespace trainyard::cli
