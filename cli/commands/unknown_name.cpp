#include "cli/commands/unknown_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "cli/exit_code.h"
#include "sim/base/diagnostic.h"
#include "sim/base/text.h"

namespace trainyard::cli {

void fail_unknown(std::string_view what, std::string_view name, std::span<const std::string> known,
                  std::string_view option) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  throw UsageError(fmt::format(
      "{}{}no {} is called '{}'; the nearest are {}", option, option.empty() ? "" : ": ", what,
      escape_control(name),
      escape_control(fmt::format("{}", fmt::join(nearest_names(name, views, 3), ", ")))));
}

void fail_input(const std::string& path, std::string why) {
  throw ScenarioError({{Severity::error, {path, 0, 0}, "", std::move(why), ""}});
}

}  // namespace trainyard::cli
