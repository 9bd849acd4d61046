// What `run` and `compare` have in common: from simulations to the files of a result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/output_folder.h"
#include "cli/report/html.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/simulate.h"

namespace trainyard::cli {

// The scenario of a command, read.
// `variant`: as LoadOptions.
scenario::ScenarioSet load(const ScenarioOptions& options,
                           const std::optional<std::string>& variant = {});

// The word as a shell reads it back.
std::string shell_word(std::string_view word);

// How to make the result again, without what does not change it (threads, colours, the folder's
// name).
std::string command_text(std::string_view command, const ScenarioOptions& options,
                         const std::string& choice_option, const std::string& choice);

// A simulation with the settings that led to it.
report::ReportVariant report_variant(const scenario::Scenario& scenario,
                                     simulate::Simulation simulation);

// trace.pftrace.gz, of the bytes that `trace` returns, and report.html. The one is made while the
// other is; neither function may change what the other reads.
std::vector<OutputFile> picture_files(const std::function<std::string()>& trace,
                                      const std::function<std::string()>& page);

// Files that the scenario was read from: itself, what it extends, presets, the profile.
std::vector<std::string> input_files(const scenario::Scenario& scenario);

// The folder of the files: -o, else what the scenario says, else empty. A scenario names a folder
// below the working folder only; throws ScenarioError otherwise.
std::string folder_path(const OutputOptions& options, const scenario::Scenario& scenario);

// Warnings of the scenarios, each once.
std::vector<Diagnostic> warnings_of(const std::vector<const scenario::Scenario*>& scenarios);
void print_warnings(const std::vector<const scenario::Scenario*>& scenarios, Console& console);

// What a comparison is with: the variant that was asked for, or, if that has no step time, the next
// one that has, from there on and then from the first. Requires: wanted < reports.size().
std::size_t fitting_baseline(const std::vector<simulate::StepReport>& reports, std::size_t wanted);

// "four-strategies has no variant 'fspd'; did you mean 'fsdp'?" as UsageError, or the variant's
// index among those that were read.
std::size_t variant_index(const scenario::ScenarioSet& set, const std::string& name);

}  // namespace trainyard::cli
