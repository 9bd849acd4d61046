#include "cli/commands.h"
#include "sim/scenario/reference.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {

ExitCode schema(const SchemaOptions& options, const Context& context) {
  context.console.result(options.markdown ? scenario::reference_page() : scenario::schema_json());
  return ExitCode::done;
}

}  // namespace trainyard::cli
