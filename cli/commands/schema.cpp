#include "cli/commands.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {

ExitCode schema(const Context& context) {
  context.console.result(scenario::schema_json());
  return ExitCode::done;
}

}  // namespace trainyard::cli
