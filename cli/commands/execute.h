// From a command to its exit code.
#pragma once

#include <functional>

#include "cli/commands.h"
#include "cli/exit_code.h"

namespace trainyard::cli {

using Command = std::function<ExitCode(const Context&)>;

// The one place where errors become exit codes: what a command throws is said on the console, and
// with `json` printed as JSON besides (cli/report/diagnostics_json.h).
ExitCode execute(const Command& command, const Context& context, bool json);

}  // namespace trainyard::cli
