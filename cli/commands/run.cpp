#include <fmt/format.h>

#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/fit_advice.h"
#include "cli/report/perfetto.h"
#include "cli/report/text.h"
#include "cli/results.h"
#include "sim/json/quantity.h"
#include "sim/simulate/report/summary.h"
#include "sim/simulate/simulate.h"

namespace trainyard::cli {
namespace {

const scenario::Scenario& chosen(const scenario::ScenarioSet& set, const std::string& variant,
                                 Console& console) {
  if (!variant.empty()) return set.variants[variant_index(set, variant)];
  if (!set.names.empty())
    console.note(
        fmt::format("{} has {} variants; this is the scenario without any "
                    "(use --variant NAME, or compare)",
                    set.base.file, set.names.size()));
  return set.base;
}

std::vector<OutputFile> files_of(const RunOptions& options, report::ReportVariant variant) {
  report::HtmlOptions html;
  html.command = command_text("run", options.scenario, "--variant", options.variant);
  if (!options.monitor.empty())
    html.command += options.monitor == "auto" ? " --monitor" : " --monitor=" + options.monitor;
  const std::string title = variant.report.name;
  std::vector<OutputFile> files;
  files.push_back({"summary.json", to_json(variant.report) + "\n"});
  for (OutputFile& picture :
       picture_files([&] { return report::perfetto_trace(variant.timeline, title); },
                     [&] {
                       return html_report(title, {&variant, 1}, 0, html);
                     }))
    files.push_back(std::move(picture));
  return files;
}

// Rows of a monitor on a terminal, whose samples are as many as a page can show.
constexpr std::size_t kMonitorRows = 20;
constexpr std::size_t kAllRows = simulate::kMostMonitorSamples;

// Of samples; empty: of the simulation's choice.
std::optional<Duration> monitor_interval(const std::string& word) {
  if (word.empty() || word == "auto") return std::nullopt;
  const json::Parsed<Duration> interval = json::parse_duration(word);
  if (!interval.ok()) throw UsageError(fmt::format("--monitor={}: {}", word, interval.problem));
  if (interval.value <= Duration(0))
    throw UsageError("--monitor: an interval is above 0, for example 10ms");
  return interval.value;
}

simulate::Simulation simulated(const scenario::Scenario& scenario,
                               const simulate::SimulateOptions& options) {
  try {
    return simulate::simulate(scenario, options);
  } catch (const simulate::BadMonitorInterval& bad) {
    throw UsageError(fmt::format("--monitor: {}; without one the step is cut into {} samples",
                                 bad.what(), simulate::kMonitorSamples));
  }
}

}  // namespace

ExitCode run(const RunOptions& options, const Context& context) {
  Console& console = context.console;
  const scenario::ScenarioSet set = load(options.scenario, options.variant);
  const scenario::Scenario& scenario = chosen(set, options.variant, console);
  print_warnings({&scenario}, console);
  std::optional<OutputFolder> folder;
  const std::string path = folder_path(options.output, set.base);
  if (!path.empty())
    folder.emplace(path, options.output.force, context.interrupts, FolderKind::step);

  simulate::SimulateOptions simulate_options;
  simulate_options.unfold = options.unfold;
  simulate_options.timeline = folder.has_value() || !options.monitor.empty();
  simulate_options.monitor = !options.monitor.empty();
  simulate_options.monitor_interval = monitor_interval(options.monitor);
  console.progress("simulating " + scenario.name);
  simulate::Simulation simulation = simulated(scenario, simulate_options);
  if (!options.no_ways_to_fit)
    add_ways_to_fit(options.scenario, scenario, {.variants = set.names}, console,
                    simulation.report);
  const bool is_feasible = simulation.report.step_time.has_value();
  std::string text = options.output.json
                         ? to_json(simulation.report) + "\n"
                         : report::to_text(simulation.report, {.colour = console.color_results()});
  if (!options.output.json)
    text += report::monitor_text(simulation.report,
                                 options.monitor == "auto" ? kMonitorRows : kAllRows);
  if (folder) {
    console.progress("writing " + folder->path());
    folder->write(files_of(options, report_variant(scenario, std::move(simulation))),
                  input_files(scenario));
    if (!options.output.json) text += fmt::format("report: {}/report.html\n", folder->path());
  }
  console.result(text);
  return is_feasible ? ExitCode::done : ExitCode::infeasible;
}

}  // namespace trainyard::cli
