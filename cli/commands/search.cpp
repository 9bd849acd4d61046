#include "cli/report/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/results.h"
#include "cli/search_log.h"
#include "sim/base/text.h"
#include "sim/base/threads/in_order.h"
#include "sim/search/journal.h"
#include "sim/search/result.h"

namespace trainyard::cli {
namespace {

using search::Shard;
using search::Space;
using search::Trial;

struct Prepared {
  scenario::ScenarioSet set;
  scenario::SearchSpec spec;
  std::unique_ptr<Space> space;
};

// A scenario's search, or the usual one.
std::unique_ptr<Prepared> prepare(const SearchCommandOptions& options, Console& console) {
  auto own = std::make_unique<Prepared>();
  own->set = load(options.scenario, "");
  print_warnings({&own->set.base}, console);
  if (own->set.search)
    own->spec = *own->set.search;
  else
    own->spec.objectives = {scenario::Objective::step_time};
  own->space = std::make_unique<Space>(own->set, own->spec);
  if (own->space->size() <= options.limit) return own;
  Diagnostic diagnostic;
  diagnostic.pointer = "/search/axes";
  const json::Value* axes = json::find(own->set.base.document, diagnostic.pointer);
  if (axes != nullptr)
    diagnostic.at = axes->at.position();
  else
    diagnostic.at.file = own->set.base.file;
  diagnostic.message = fmt::format("the space has {} configurations, at most {} are searched: {}",
                                   own->space->size(), options.limit, own->space->sizes());
  diagnostic.hint = "narrow the axes, or allow more with --limit";
  throw ScenarioError({std::move(diagnostic)});
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

std::optional<std::uint64_t> number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? number_of(text) : std::nullopt;
}

// What launchers tell each of their processes: its number, the lowest and the highest number, and
// how many there are.
std::optional<Shard> launched_shard() {
  struct Launcher {
    const char *number, *lowest, *most, *count;
  };
  constexpr std::array<Launcher, 4> kLaunchers = {
      {{"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_COUNT"},
       {"OMPI_COMM_WORLD_RANK", nullptr, nullptr, "OMPI_COMM_WORLD_SIZE"},
       {"PMI_RANK", nullptr, nullptr, "PMI_SIZE"},
       {"SLURM_PROCID", nullptr, nullptr, "SLURM_NTASKS"}}};
  for (const Launcher& launcher : kLaunchers) {
    const auto number = number_in_environment(launcher.number);
    const auto count = number_in_environment(launcher.count);
    if (!number || !count) continue;
    const std::uint64_t lowest =
        launcher.lowest != nullptr ? number_in_environment(launcher.lowest).value_or(0) : 0;
    if (launcher.most != nullptr) {
      // An array may leave numbers out.
      const std::uint64_t most = number_in_environment(launcher.most).value_or(*number);
      if (most < lowest || most - lowest >= *count || *number < lowest || *number > most)
        throw UsageError(
            fmt::format("--shard auto: the array has {} tasks from {} to {}, so that {} does not "
                        "say which part this is; submit it without gaps: --array=1-{}",
                        *count, lowest, most, launcher.number, *count));
    }
    if (*number >= lowest && *number - lowest < *count) return Shard{*number - lowest, *count};
  }
  return std::nullopt;
}

Shard shard_of(const std::string& text) {
  constexpr std::uint64_t kMost = 1'000'000;
  if (text.empty()) return {};
  if (text == "auto") {
    if (const std::optional<Shard> shard = launched_shard()) return *shard;
    throw UsageError(
        "--shard auto: neither a Slurm array nor an MPI launcher says which part of "
        "how many this is; write --shard 1/4");
  }
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::uint64_t index = number_of(text.substr(0, slash)).value_or(0);
  const std::uint64_t count =
      slash < text.size() ? number_of(text.substr(slash + 1)).value_or(0) : 0;
  if (count < 1)
    throw UsageError(fmt::format("--shard: expected I/N, e.g. 1/4, or auto, got '{}'", text));
  if (index < 1 || index > count || count > kMost)
    throw UsageError(fmt::format("--shard {0}: shards of {1} are 1/{1} to {1}/{1}", text, count));
  return {index - 1, count};
}

// "search-3.jsonl" of "search-%s.jsonl": where several processes have the same command line.
std::string log_of(std::string path, const Shard& shard) {
  const std::size_t at = path.find("%s");
  if (at != std::string::npos) path.replace(at, 2, fmt::format("{}", shard.index + 1));
  return path;
}

// The rate, and what is left at it.
class Clock {
 public:
  std::string text(const search::SearchProgress& progress) const {
    const double passed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    const double rate = static_cast<double>(progress.judged) / std::max(passed, 1e-9);
    if (progress.judged < progress.of)
      return fmt::format("judged {} of {} configurations, {:.0f} a second, {:.0f} s left",
                         progress.judged, progress.of, rate,
                         static_cast<double>(progress.of - progress.judged) / rate);
    return fmt::format("simulated {} configurations, at most {} may be better", progress.simulated,
                       progress.left);
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

std::vector<Trial> searched(const Prepared& own, const SearchCommandOptions& options,
                            const Shard& shard, Console& console) {
  const search::JournalHead head =
      head_of(own.set, own.spec, *own.space, shard, options.exhaustive);
  SearchLog file(log_of(options.log, shard), head, options.resume);
  const search::Judge judge(own.set, own.spec, *own.space);
  search::SearchOptions search_options;
  search_options.jobs = options.jobs;
  search_options.exhaustive = options.exhaustive;
  search_options.shard = shard;
  search_options.known = file.take_known();
  if (!options.log.empty())
    search_options.tell = [&](const Trial& trial) { file.write(to_line(trial, *own.space)); };
  const Clock clock;
  search_options.progress = [&](const search::SearchProgress& progress) {
    console.progress(clock.text(progress));
  };
  return search::search(judge, *own.space, own.spec, search_options);
}

std::string configurations(const std::vector<Trial>& trials, const search::JournalHead& head,
                           const Space& space) {
  std::string text = to_line(head) + "\n";
  for (const Trial& trial : trials)
    text += to_line(trial, space) + "\n";
  return text;
}

// "1: tp 8, micro_batch 1": its place, and its values of the axes in which the reported differ.
std::string label_of(const search::SearchResult& result, std::size_t place) {
  const std::vector<std::string> names = report::axis_headings(result.axes);
  const std::vector<search::RankedTrial>& best = result.best;
  const auto end = best.begin() + std::min<std::ptrdiff_t>(std::ssize(best), report::kReported);
  std::string values;
  for (std::size_t axis = 0; axis < names.size(); ++axis) {
    const std::string& value = best[place].values[axis];
    const bool same = std::all_of(best.begin(), end,
                                  [&](const auto& other) { return other.values[axis] == value; });
    if (!same && !value.empty())
      values += fmt::format("{}{} {}", values.empty() ? "" : ", ", names[axis], value);
  }
  return fmt::format("{}{}{}", place + 1, values.empty() ? "" : ": ", values);
}

// The best five, simulated once more for what of their timelines the page has room for. Those that
// are too long for one have none.
std::string report_of_best(const Prepared& own, const search::SearchResult& result, int jobs,
                           const std::string& command) {
  report::HtmlOptions html;
  html.command = command;
  const search::Judge judge(own.set, own.spec, *own.space);
  const auto variants = in_order<report::ReportVariant>(
      std::min(result.best.size(), report::kReported), jobs, [&](std::size_t at) {
        scenario::Scenario scenario = judge.scenario(result.best[at].trial.number);
        scenario.variant = fmt::format("best-{}", at + 1);
        scenario.label = label_of(result, at);
        simulate::SimulateOptions options;
        options.timeline = simulate::timeline_passes(scenario) <= simulate::kMostTimelinePasses;
        options.shown.ops = html.slice_cap;
        return report_variant(scenario, simulate::simulate(scenario, options));
      });
  if (variants.empty()) return "";
  return html_report(own.set.base.name, variants, 0, html);
}

// Made before the search, so that none is in vain. Null: none is asked for.
std::unique_ptr<OutputFolder> folder_of(const SearchCommandOptions& options,
                                        const Context& context) {
  if (options.output.folder.empty()) return nullptr;
  return std::make_unique<OutputFolder>(options.output.folder, options.output.force,
                                        context.interrupts, FolderKind::search);
}

// `json`: of the result.
void write_pages(const Prepared& own, const std::vector<Trial>& trials,
                 const search::SearchResult& result, const std::string& json,
                 const report::RunCommand& run, const SearchCommandOptions& options,
                 OutputFolder& folder) {
  const search::JournalHead head = head_of(own.set, own.spec, *own.space, {}, options.exhaustive);
  std::vector<OutputFile> files = {
      {"summary.json", json},
      {"configurations.jsonl", configurations(trials, head, *own.space)},
      {"search.html", report::search_page(result, trials, run)}};
  std::string commands = command_text("search", options.scenario, "", "");
  for (const std::string& command : report::run_commands(result, run))
    commands += "\n" + command;
  std::string page = report_of_best(own, result, options.jobs, commands);
  if (!page.empty()) files.push_back({"report.html", std::move(page)});
  folder.write(files, input_files(own.set.base));
}

// What is to be known of the best configuration that the scenario itself does not give cause for.
void warn_of_best(const Prepared& own, const search::SearchResult& result, Console& console) {
  if (result.best.empty()) return;
  const search::Judge judge(own.set, own.spec, *own.space);
  scenario::Scenario best = judge.scenario(result.best.front().trial.number);
  std::erase_if(best.warnings, [&](const Diagnostic& warning) {
    return std::any_of(
        own.set.base.warnings.begin(), own.set.base.warnings.end(), [&](const Diagnostic& known) {
          return known.pointer == warning.pointer && known.message == warning.message;
        });
  });
  for (Diagnostic& warning : best.warnings)
    warning.message = "of the best configuration: " + warning.message;
  print_warnings({&best}, console);
}

ExitCode tell(const Prepared& own, std::vector<Trial> trials, OutputFolder* folder,
              const SearchCommandOptions& options, const Context& context) {
  const search::SearchResult result =
      result_of(trials, own.set, own.spec, *own.space, options.exhaustive);
  if (!options.exhaustive) canonical(trials, own.spec);
  const report::RunCommand run = [&options](const std::vector<std::string>& sets) {
    std::string command = fmt::format("trainyard run {}", shell_word(options.scenario.path));
    for (const std::string& set : options.scenario.sets)
      if (!set.starts_with("search.") && !set.starts_with("/search"))
        command += " --set " + shell_word(set);
    for (const std::string& set : sets)
      command += " --set " + shell_word(set);
    return command;
  };
  warn_of_best(own, result, context.console);
  const std::string json = json::to_text(json_of(result)) + "\n";
  std::string text = options.output.json ? json : report::search_text(result, run);
  if (folder != nullptr) {
    context.console.progress("writing " + folder->path());
    try {
      write_pages(own, trials, result, json, run, options, *folder);
    } catch (...) {
      context.console.result(text);  // what was found is not lost
      throw;
    }
    if (!options.output.json)
      text += fmt::format("pages: {}/search.html{}\n", folder->path(),
                          result.best.empty()
                              ? ""
                              : fmt::format(", and of the best {}/report.html", folder->path()));
  }
  context.console.result(text);
  return result.best.empty() ? ExitCode::infeasible : ExitCode::done;
}

// A batch script of as many tasks, each of which is a shard.
std::string slurm_script(const SearchCommandOptions& options) {
  const std::string scenario = shell_word(options.scenario.path);
  std::string sets;
  for (const std::string& set : options.scenario.sets)
    sets += " --set " + shell_word(set);
  std::string stem = std::filesystem::path(options.scenario.path).stem().string();
  if (!stem.starts_with("search-")) stem = "search-" + stem;
  // A word of the shell and of sbatch as it is.
  std::replace_if(
      stem.begin(), stem.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.'; },
      '_');
  return fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name={0}\n"
      "#SBATCH --array=1-{1}\n"
      "#SBATCH --ntasks=1\n"
      "#SBATCH --cpus-per-task=4\n"
      "# Submitted again, it goes on with what is there. When all tasks are done:\n"
      "#   trainyard search merge {2} {0}-*.jsonl{4}\n"
      "srun trainyard search {2}{3} --shard \"$SLURM_ARRAY_TASK_ID/{1}\" "
      "--log {0}-%s.jsonl --resume "
      "--jobs \"${{SLURM_CPUS_PER_TASK:-4}}\"\n",
      stem, options.slurm, scenario, sets + (options.exhaustive ? " --exhaustive" : ""), sets);
}

// Where a configuration was to be found that is in none of the logs.
[[noreturn]] void refuse_incomplete(const std::map<std::uint64_t, Trial>& all, std::uint64_t size,
                                    const std::vector<search::JournalHead>& heads,
                                    const std::vector<std::string>& logs) {
  std::uint64_t missing = 0;  // the first
  for (auto at = all.begin(); at != all.end() && at->first == missing; ++at)
    ++missing;
  Diagnostic diagnostic;
  diagnostic.at.file = logs.front();
  diagnostic.message = fmt::format("{} configurations are in none of the logs", size - all.size());
  diagnostic.hint = "run the shards that are missing, or those that were stopped with --resume";
  const search::Shard& divided = heads.front().shard;
  const std::uint64_t index = missing % divided.count;
  for (std::size_t log = 0; log < logs.size(); ++log) {
    if (heads[log].shard.count != divided.count || heads[log].shard.index != index) continue;
    diagnostic.at.file = logs[log];
    diagnostic.message += ", the first of them of this one's";
    throw ScenarioError({std::move(diagnostic)});
  }
  diagnostic.message += fmt::format(", the first of them of shard {}/{}, whose log is not here",
                                    index + 1, divided.count);
  throw ScenarioError({std::move(diagnostic)});
}

// Whether all shards left nothing out by bounds.
bool all_exhaustive(const std::vector<search::JournalHead>& heads,
                    const std::vector<std::string>& logs) {
  for (std::size_t log = 1; log < heads.size(); ++log) {
    if (heads[log].exhaustive == heads.front().exhaustive) continue;
    Diagnostic diagnostic;
    diagnostic.at.file = logs[log];
    diagnostic.message = fmt::format("this shard was searched with{} --exhaustive, and {} with{}",
                                     heads[log].exhaustive ? "" : "out", logs.front(),
                                     heads.front().exhaustive ? "" : "out");
    diagnostic.hint = "search all shards in one way";
    throw ScenarioError({std::move(diagnostic)});
  }
  return heads.front().exhaustive;
}

}  // namespace

ExitCode search_space(const SearchCommandOptions& options, const Context& context) {
  if (options.scenario.path.empty())
    throw UsageError("search: the scenario is missing; see 'trainyard search --help'");
  if (options.slurm > 0) {
    if (!options.log.empty() || !options.shard.empty() || !options.output.folder.empty())
      throw UsageError(
          "--slurm: the script says --shard and --log itself, and 'trainyard search merge' takes "
          "-o");
    context.console.result(slurm_script(options));
    return ExitCode::done;
  }
  const Shard shard = shard_of(options.shard);
  if (shard.count > 1 && options.log.empty())
    throw UsageError(
        "--shard: a part of a search goes into a file, --log part-1.jsonl, from which "
        "'trainyard search merge' puts it together with the others");
  if (shard.count > 1 && !options.output.folder.empty())
    throw UsageError("-o: a part of a search has no report; 'trainyard search merge' writes it");
  if (options.resume && options.log.empty())
    throw UsageError("--resume: with --log FILE, which holds what was done before");
  const std::unique_ptr<Prepared> own = prepare(options, context.console);
  const std::unique_ptr<OutputFolder> folder = folder_of(options, context);
  std::vector<Trial> trials = searched(*own, options, shard, context.console);
  if (shard.count == 1) return tell(*own, std::move(trials), folder.get(), options, context);
  const auto simulated = std::count_if(trials.begin(), trials.end(),
                                       [](const Trial& trial) { return trial.result.has_value(); });
  context.console.note(fmt::format("shard {}/{}: {} configurations, {} of them simulated, in {}",
                                   shard.index + 1, shard.count, trials.size(), simulated,
                                   log_of(options.log, shard)));
  return ExitCode::done;
}

ExitCode merge_searches(const SearchCommandOptions& options, const Context& context) {
  const std::unique_ptr<Prepared> own = prepare(options, context.console);
  const std::unique_ptr<OutputFolder> folder = folder_of(options, context);
  const search::JournalHead head = head_of(own->set, own->spec, *own->space, {});
  std::map<std::uint64_t, Trial> all;
  std::vector<search::JournalHead> heads;
  for (const std::string& path : options.logs) {
    search::Journal journal = read_log(path);
    check_space(journal, head, path);
    heads.push_back(journal.head);
    for (auto& [number, trial] : journal.trials) {
      const auto [at, is_new] = all.try_emplace(number, trial);
      if (!is_new && trial.result) at->second = std::move(trial);
    }
  }
  if (all.size() != head.size) refuse_incomplete(all, head.size, heads, options.logs);
  SearchCommandOptions merged = options;
  merged.exhaustive = all_exhaustive(heads, options.logs);
  if (options.exhaustive && !merged.exhaustive)
    throw UsageError("--exhaustive: the shards were searched without it");
  std::vector<Trial> trials;
  for (auto& [number, trial] : all)
    trials.push_back(std::move(trial));
  return tell(*own, std::move(trials), folder.get(), merged, context);
}

}  // namespace trainyard::cli
