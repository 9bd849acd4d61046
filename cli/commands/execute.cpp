#include "cli/commands/execute.h"

#include <exception>
#include <new>
#include <string>

#include "sim/base/diagnostic.h"
#include "sim/base/out_of_range.h"

namespace trainyard::cli {

ExitCode execute(const Command& command, const Context& context) {
  Console& console = context.console;
  ExitCode code = ExitCode::internal;
  try {
    code = command(context);
  } catch (const ScenarioError& error) {
    console.end_progress();
    console.diagnostics(error.diagnostics());
    code = ExitCode::invalid_input;
  } catch (const OutOfRange& error) {
    console.error(error.what());
    code = ExitCode::invalid_input;
  } catch (const UsageError& error) {
    console.error(error.what());
    code = ExitCode::usage;
  } catch (const EnvironmentError& error) {
    console.error(error.what());
    code = ExitCode::environment;
  } catch (const std::bad_alloc&) {
    console.error("there is not enough memory for this simulation");
    code = ExitCode::environment;
  } catch (const std::exception& error) {
    console.error(std::string("mistake in trainyard: ") + error.what());
  }
  console.end_progress();
  return code;
}

}  // namespace trainyard::cli
