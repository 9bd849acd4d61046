#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "cli/commands.h"
#include "cli/fit_advice.h"
#include "cli/report/csv.h"
#include "cli/report/perfetto.h"
#include "cli/report/text.h"
#include "cli/results.h"
#include "sim/base/threads/in_order.h"
#include "sim/simulate/report/summary.h"

namespace trainyard::cli {
namespace {

std::vector<simulate::Simulation> simulate_all(const scenario::ScenarioSet& set,
                                               const CompareOptions& options, bool with_timeline,
                                               Console& console) {
  simulate::SimulateOptions simulate_options;
  simulate_options.unfold = options.unfold;
  simulate_options.timeline = with_timeline;
  simulate::PricedMachines machines;
  simulate_options.machines = &machines;
  search::KnownSteps known;
  const FitAdvice advice{
      .variants = set.names, .alone = false, .known = &known, .machines = &machines};
  std::atomic<std::size_t> done = 0;
  const std::size_t count = set.variants.size();
  console.progress(fmt::format("simulating {} variants", count));
  return in_order<simulate::Simulation>(count, options.jobs, [&](std::size_t i) {
    simulate::Simulation simulation = simulate::simulate(set.variants[i], simulate_options);
    if (!options.no_ways_to_fit)
      add_ways_to_fit(options.scenario, set.variants[i], advice, console, simulation.report);
    console.progress(fmt::format("simulated {} of {} variants", ++done, count));
    return simulation;
  });
}

std::vector<std::string> input_files(const scenario::ScenarioSet& set) {
  std::set<std::string> files;
  for (const scenario::Scenario& scenario : set.variants)
    for (const std::string& file : cli::input_files(scenario))
      files.insert(file);
  return {files.begin(), files.end()};
}

std::vector<OutputFile> files_of(const CompareOptions& options, const scenario::ScenarioSet& set,
                                 std::vector<simulate::Simulation> simulations, std::string summary,
                                 std::size_t baseline) {
  std::vector<OutputFile> files;
  std::vector<report::ReportVariant> variants;
  std::vector<report::NamedTimeline> timelines;
  files.push_back({"summary.json", std::move(summary)});
  for (std::size_t i = 0; i < simulations.size(); ++i)
    variants.push_back(report_variant(set.variants[i], std::move(simulations[i])));
  for (std::size_t i = 0; i < variants.size(); ++i)
    timelines.push_back({set.variants[i].variant, &variants[i].timeline});
  report::HtmlOptions html;
  html.command = command_text("compare", options.scenario, "--baseline", options.baseline);
  for (OutputFile& picture :
       picture_files([&] { return perfetto_trace(timelines, set.base.name); },
                     [&] { return html_report(set.base.name, variants, baseline, html); }))
    files.push_back(std::move(picture));
  return files;
}

}  // namespace

ExitCode compare(const CompareOptions& options, const Context& context) {
  Console& console = context.console;
  const scenario::ScenarioSet set = load(options.scenario);
  if (set.variants.empty())
    throw UsageError(fmt::format("{} has no variants to compare; use run", set.base.file));
  const std::string& named = options.baseline.empty() ? set.baseline : options.baseline;
  const std::size_t wanted = named.empty() ? 0 : variant_index(set, named);
  std::vector<const scenario::Scenario*> scenarios;
  for (const scenario::Scenario& scenario : set.variants)
    scenarios.push_back(&scenario);
  print_warnings(scenarios, console);
  std::optional<OutputFolder> folder;
  const std::string path = folder_path(options.output, set.base);
  if (!path.empty())
    folder.emplace(path, options.output.force, context.interrupts, FolderKind::comparison);

  std::vector<simulate::Simulation> simulations =
      simulate_all(set, options, folder.has_value(), console);
  std::vector<simulate::StepReport> reports;
  for (const simulate::Simulation& simulation : simulations)
    reports.push_back(simulation.report);
  const std::size_t baseline = fitting_baseline(reports, wanted);
  if (baseline != wanted) {
    const std::string note =
        fmt::format("the baseline {} has no step time; compared with {}",
                    set.variants[wanted].variant, set.variants[baseline].variant);
    console.note(note);
    reports[baseline].warnings.push_back(note);
    simulations[baseline].report.warnings.push_back(note);
  }
  const std::string summary = compare_json(set.base.name, reports, baseline) + "\n";
  std::string text = summary;
  if (options.csv) text = report::compare_csv(reports, baseline);
  const bool for_people = !options.csv && !options.output.json;
  if (for_people)
    text =
        report::compare_text(set.base.name, reports, baseline, {.colour = console.color_results()});
  if (folder) {
    console.progress("writing " + folder->path());
    folder->write(files_of(options, set, std::move(simulations), summary, baseline),
                  input_files(set));
    if (for_people) text += fmt::format("report: {}/report.html\n", folder->path());
  }
  console.result(text);
  const bool any_feasible =
      std::any_of(reports.begin(), reports.end(),
                  [](const simulate::StepReport& report) { return report.step_time.has_value(); });
  return any_feasible ? ExitCode::done : ExitCode::infeasible;
}

}  // namespace trainyard::cli
