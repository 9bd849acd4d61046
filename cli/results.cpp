#include "cli/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <set>
#include <utility>

#include "cli/report/compress.h"
#include "sim/base/text.h"
#include "sim/scenario/gpu_origin.h"

namespace trainyard::cli {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./=:,@%+").find(c) != std::string_view::npos;
}

void collect_files(const json::Value& value, std::set<std::string>& files) {
  if (value.at.file && value.at.line > 0) files.insert(*value.at.file);
  for (const json::Value& item : value.items)
    collect_files(item, files);
  for (const json::Member& member : value.members)
    collect_files(member.value, files);
}

}  // namespace

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  std::string text = "'";
  for (const char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

scenario::ScenarioSet load(const ScenarioOptions& options,
                           const std::optional<std::string>& variant) {
  return scenario::load_scenario(options.path, options.sets,
                                 {.variant = variant, .root = options.root});
}

std::string command_text(std::string_view command, const ScenarioOptions& options,
                         const std::string& choice_option, const std::string& choice) {
  const std::string name = std::filesystem::path(options.path).filename().string();
  std::string text = fmt::format("trainyard {} {}", command, shell_word(name));
  for (const std::string& set : options.sets)
    text += " --set " + shell_word(set);
  if (!options.root.empty()) text += " --root DIR";
  if (!choice.empty()) text += fmt::format(" {} {}", choice_option, shell_word(choice));
  return text + " -o DIR";
}

// A report may be given to others: it does not tell where its maker keeps files.
report::ReportVariant report_variant(const scenario::Scenario& scenario,
                                     simulate::Simulation simulation) {
  report::ReportVariant variant;
  variant.label = scenario.variant.empty() ? scenario.name : scenario.variant;
  if (!scenario.label.empty()) variant.label = scenario.label;
  const std::string& profile = scenario.profiles.front().path;
  for (const json::Explained& value : explain(scenario)) {
    const bool is_profile = value.pointer == "/cluster/calibration" && !profile.empty();
    const bool is_network = value.pointer == "/model/hf_config";
    const std::filesystem::path path(is_profile ? profile : scenario.network_name);
    const std::string name = is_profile ? path.stem().string() : path.filename().string();
    variant.settings.push_back({value.pointer, is_profile || is_network
                                                   ? json::to_text(json::Value::of(name), -1)
                                                   : value.value});
  }
  variant.report = std::move(simulation.report);
  variant.timeline = std::move(simulation.timeline);
  return variant;
}

std::vector<OutputFile> picture_files(const std::function<std::string()>& trace,
                                      const std::function<std::string()>& page) {
  // Where no thread can be had, it is made when it is asked for.
  std::future<std::string> packed = std::async([&] { return report::gzip(trace()); });
  std::string html = page();
  return {{"trace.pftrace.gz", packed.get()}, {"report.html", std::move(html)}};
}

std::vector<std::string> input_files(const scenario::Scenario& scenario) {
  std::set<std::string> files = {scenario.file};
  for (std::string& profile : scenario::profile_files(scenario))
    files.insert(std::move(profile));
  collect_files(scenario.document, files);
  return {files.begin(), files.end()};
}

std::string folder_path(const OutputOptions& options, const scenario::Scenario& scenario) {
  if (!options.folder.empty() || scenario.output_directory.empty()) return options.folder;
  const std::filesystem::path path(scenario.output_directory);
  if (path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end())
    return scenario.output_directory;
  Diagnostic problem;
  problem.pointer = "/outputs/directory";
  problem.message = "a scenario can only write below the folder in which trainyard runs";
  problem.hint = "write a relative path without '..', or use -o";
  const json::Value* value = json::find(scenario.document, problem.pointer);
  problem.at = value != nullptr ? value->at.position() : Position{scenario.file, 0, 0};
  throw ScenarioError({problem});
}

std::vector<Diagnostic> warnings_of(const std::vector<const scenario::Scenario*>& scenarios) {
  std::set<std::string> seen;
  std::vector<Diagnostic> list;
  for (const scenario::Scenario* scenario : scenarios)
    for (const Diagnostic& warning : scenario->warnings)
      if (seen.insert(to_text(warning)).second) list.push_back(warning);
  return list;
}

void print_warnings(const std::vector<const scenario::Scenario*>& scenarios, Console& console) {
  console.diagnostics(warnings_of(scenarios));
}

std::size_t fitting_baseline(const std::vector<simulate::StepReport>& reports, std::size_t wanted) {
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const std::size_t at = (wanted + i) % reports.size();
    if (reports[at].step_time) return at;
  }
  return wanted;
}

std::size_t variant_index(const scenario::ScenarioSet& set, const std::string& name) {
  for (std::size_t i = 0; i < set.variants.size(); ++i)
    if (set.variants[i].variant == name) return i;
  const std::vector<std::string_view> known(set.names.begin(), set.names.end());
  std::string text =
      fmt::format("{} has no variant '{}'", escape_control(set.base.file), escape_control(name));
  if (const auto near = find_nearest(name, known))
    text += fmt::format("; did you mean '{}'?", escape_control(*near));
  else if (!known.empty())
    text += fmt::format("; it has {}", escape_control(fmt::format("{}", fmt::join(known, ", "))));
  throw UsageError(text);
}

}  // namespace trainyard::cli
