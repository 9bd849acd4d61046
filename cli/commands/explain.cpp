#include "sim/simulate/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/commands.h"
#include "cli/results.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {
namespace {

// "a.json:14:21", "--set", "default". Files below the working folder without its path.
std::string origin(const Position& at) {
  if (at.line == 0) return at.file;
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string() + "/";
  const bool is_below = !error && at.file.starts_with(here);
  return fmt::format("{}:{}:{}", at.file.substr(is_below ? here.size() : 0), at.line, at.column);
}

// One line per value: pointer, value, where it was written.
std::string values_text(const scenario::Scenario& scenario) {
  const std::vector<json::Explained> values = explain(scenario);
  std::size_t pointers = 0, texts = 0;
  for (const json::Explained& value : values) {
    pointers = std::max(pointers, value.pointer.size());
    texts = std::max(texts, std::min<std::size_t>(value.value.size(), 40));
  }
  std::string text;
  for (const json::Explained& value : values)
    text += fmt::format("{:<{}}  {:<{}}  {}\n", escape_control(value.pointer), pointers,
                        escape_control(value.value), texts, escape_control(origin(value.origin)));
  return text;
}

std::string stage_text(const scenario::Scenario& scenario, std::string_view stage) {
  return stage == "scenario" ? values_text(scenario) : simulate::explain_stage(scenario, stage);
}

}  // namespace

std::vector<std::string> explain_stages() {
  std::vector<std::string> names = {"scenario"};
  for (const simulate::ExplainStage& stage : simulate::kExplainStages)
    names.emplace_back(stage.name);
  return names;
}

ExitCode explain(const ExplainOptions& options, const Context& context) {
  const scenario::ScenarioSet set = load(options.scenario, options.variant);
  const scenario::Scenario& scenario =
      options.variant.empty() ? set.base : set.variants[variant_index(set, options.variant)];
  print_warnings({&scenario}, context.console);
  if (!options.stage.empty()) {
    context.console.result(stage_text(scenario, options.stage));
    return ExitCode::done;
  }
  std::string text;
  for (const std::string_view stage : {"scenario", "ranks", "memory"})
    text += fmt::format("{}{}:\n{}", text.empty() ? "" : "\n", stage, stage_text(scenario, stage));
  context.console.result(text);
  return ExitCode::done;
}

}  // namespace trainyard::cli
