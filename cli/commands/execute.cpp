#include "cli/commands/execute.h"

#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/diagnostics_json.h"
#include "sim/base/diagnostic.h"
#include "sim/base/out_of_range.h"

namespace trainyard::cli {

namespace {

// What a command threw, and the code for it.
struct Failure {
  ExitCode code = ExitCode::done;
  std::vector<Diagnostic> said;
};

Failure plain(ExitCode code, std::string message, Console& console) {
  console.error(message);
  Diagnostic diagnostic;
  diagnostic.message = std::move(message);
  return {code, {std::move(diagnostic)}};
}

// Requires: an exception is being handled.
Failure say_what_was_thrown(Console& console) {
  try {
    throw;
  } catch (const ScenarioError& error) {
    console.end_progress();
    console.diagnostics(error.diagnostics());
    return {ExitCode::invalid_input, error.diagnostics()};
  } catch (const OutOfRange& error) {
    return plain(ExitCode::invalid_input, error.what(), console);
  } catch (const UsageError& error) {
    return plain(ExitCode::usage, error.what(), console);
  } catch (const EnvironmentError& error) {
    return plain(ExitCode::environment, error.what(), console);
  } catch (const std::bad_alloc&) {
    return plain(ExitCode::environment, "there is not enough memory for this simulation", console);
  } catch (const std::exception& error) {
    return plain(ExitCode::internal, std::string("mistake in trainyard: ") + error.what(), console);
  }
}

}  // namespace

ExitCode execute(const Command& command, const Context& context, bool json) {
  Console& console = context.console;
  ExitCode code = ExitCode::internal;
  try {
    code = command(context);
  } catch (...) {
    const Failure failure = say_what_was_thrown(console);
    code = failure.code;
    // A standard output that takes nothing is what the environment's error was about.
    if (json && code != ExitCode::environment) {
      try {
        console.result(report::errors_json(failure.said));
      } catch (const EnvironmentError& error) {
        console.error(error.what());
        code = ExitCode::environment;
      }
    }
  }
  console.end_progress();
  return code;
}

}  // namespace trainyard::cli
