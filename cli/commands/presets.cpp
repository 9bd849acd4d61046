#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "cli/commands.h"
#include "cli/commands/unknown_name.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {
namespace {

std::string list_text(const std::vector<scenario::Preset>& presets) {
  std::size_t kinds = 0, names = 0;
  for (const scenario::Preset& preset : presets) {
    kinds = std::max(kinds, preset.kind.size());
    names = std::max(names, preset.name.size());
  }
  std::string text;
  for (const scenario::Preset& preset : presets) {
    std::string line =
        fmt::format("{:<{}}  {:<{}}  {}", preset.kind, kinds, escape_control(preset.name), names,
                    escape_control(preset.description));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// A name may stand for presets of several kinds; "gpu/a100" names one.
std::vector<scenario::Preset> named(const std::vector<scenario::Preset>& presets,
                                    const std::string& name) {
  std::vector<scenario::Preset> found;
  for (const scenario::Preset& preset : presets)
    if (preset.name == name || preset.kind + "/" + preset.name == name) found.push_back(preset);
  return found;
}

std::vector<std::string> names_of(const std::vector<scenario::Preset>& presets) {
  std::vector<std::string> names;
  for (const scenario::Preset& preset : presets)
    names.push_back(preset.name);
  return names;
}

std::string content(const scenario::Preset& preset) {
  if (preset.path.empty())
    return fmt::format("{} {}: {}\n", preset.kind, preset.name, preset.description);
  std::ifstream file(preset.path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || text.empty()) throw EnvironmentError(preset.path + ": cannot be read");
  return text;
}

}  // namespace

ExitCode presets(const PresetsOptions& options, const Context& context) {
  const std::vector<scenario::Preset> all = scenario::list_presets(scenario::configs_folder("."));
  if (options.show.empty()) {
    context.console.result(list_text(all));
    return ExitCode::done;
  }
  const std::vector<scenario::Preset> found = named(all, options.show);
  if (found.empty()) fail_unknown("preset", options.show, names_of(all));
  if (found.size() > 1)
    throw UsageError(fmt::format("'{}' is a {} and a {}; write {}/{}", options.show, found[0].kind,
                                 found[1].kind, found[0].kind, options.show));
  context.console.result(content(found[0]));
  return ExitCode::done;
}

}  // namespace trainyard::cli
