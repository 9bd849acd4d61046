#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "cli/commands.h"
#include "cli/commands/unknown_name.h"
#include "cli/output_folder.h"
#include "cli/report/validation.h"
#include "sim/base/out_of_range.h"
#include "sim/base/text.h"
#include "sim/base/threads/in_order.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/software.h"
#include "sim/scenario/sources.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> json_files(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code))
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  if (code) fail_input(folder.string(), "cannot be read: " + code.message());
  if (files.empty()) fail_input(folder.string(), "holds no .json file");
  std::sort(files.begin(), files.end());
  return files;
}

// The files of the command, or those that come with the program.
std::vector<std::string> record_files(const std::vector<std::string>& given) {
  if (given.empty()) return json_files(fs::path(scenario::configs_folder(".")) / "validation");
  std::vector<std::string> files;
  for (const std::string& path : given) {
    std::error_code code;
    if (!fs::is_directory(path, code)) {
      files.push_back(path);
      continue;
    }
    for (std::string& file : json_files(path))
      files.push_back(std::move(file));
  }
  return files;
}

// Once, instead of for each record.
void check_software(const std::string& name) {
  if (name.empty()) return;
  const std::string configs = scenario::configs_folder(".");
  if (scenario::software_file(name, configs).empty())
    fail_unknown("software", name, scenario::preset_names(configs, "software"));
}

// What became of one record.
struct Answer {
  std::optional<validation::Prediction> prediction;
  std::vector<Diagnostic> problems;
};

Answer answer_to(const validation::RecordSet& set, const validation::Record& record,
                 const validation::PredictOptions& options) {
  try {
    Answer answer;
    answer.prediction = predict(set, record, options, answer.problems);
    return answer;
  } catch (const ScenarioError& error) {
    return {{}, error.diagnostics()};
  } catch (const OutOfRange& error) {
    return {{},
            {{Severity::error, record.at, record.pointer,
              fmt::format("\"{}\": {}", record.name, error.what()), ""}}};
  }
}

std::vector<Answer> answers_to(const std::vector<validation::RecordSet>& sets,
                               const ValidateOptions& options, Console& console) {
  std::vector<std::pair<const validation::RecordSet*, const validation::Record*>> all;
  for (const validation::RecordSet& set : sets)
    for (const validation::Record& record : set.records)
      all.emplace_back(&set, &record);
  std::atomic<std::size_t> done = 0;
  return in_order<Answer>(all.size(), options.jobs, [&](std::size_t i) {
    Answer answer = answer_to(*all[i].first, *all[i].second, {options.root, options.software});
    console.progress(fmt::format("predicted {} of {} records", ++done, all.size()));
    return answer;
  });
}

// What all records of a set name, as a profile, would be said once for each of them.
std::vector<Diagnostic> without_repeats(const std::vector<Diagnostic>& problems) {
  std::set<std::string> said;
  std::vector<Diagnostic> once;
  for (const Diagnostic& problem : problems)
    if (said.insert(to_text(problem)).second) once.push_back(problem);
  return once;
}

std::string outputs(const ValidateOptions& options, const std::vector<std::string>& inputs,
                    const std::vector<validation::PredictedSet>& sets, const Context& context) {
  const std::string json = report::validation_json(sets);
  std::string text = options.json ? json : report::validation_text(sets, options.rows);
  if (options.folder.empty()) return text;
  // An earlier validation is replaced; other files of the folder stay.
  OutputFolder folder(options.folder, true, context.interrupts, FolderKind::files);
  folder.write({{"validation.json", json}, {"validation.html", report::validation_html(sets)}},
               inputs);
  if (!options.json)
    text += fmt::format("page: {}/validation.html\n", escape_control(folder.path()));
  return text;
}

}  // namespace

ExitCode validate(const ValidateOptions& options, const Context& context) {
  check_software(options.software);
  const std::vector<std::string> files = record_files(options.records);
  std::vector<validation::RecordSet> sets;
  std::vector<Diagnostic> problems;
  std::vector<validation::PredictedSet> predicted;
  for (const std::string& file : files) {
    sets.push_back(validation::read_records(file, options.root, problems));
    predicted.push_back({sets.back().name,
                         sets.back().source,
                         sets.back().license,
                         {},
                         sets.back().wrong,
                         sets.back().unmeasured});
  }
  const std::vector<Answer> answers = answers_to(sets, options, context.console);
  std::size_t next = 0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    for (validation::Record& record : sets[i].records) {
      const Answer& answer = answers[next++];
      problems.insert(problems.end(), answer.problems.begin(), answer.problems.end());
      record.scenarios.clear();
      if (answer.prediction)
        predicted[i].rows.push_back({std::move(record), *answer.prediction});
      else
        ++predicted[i].left_out;
    }
  }
  context.console.end_progress();
  context.console.diagnostics(without_repeats(problems));
  context.console.result(outputs(options, files, predicted, context));
  return problems.empty() ? ExitCode::done : ExitCode::invalid_input;
}

}  // namespace trainyard::cli
