// trainyard calibrate: runs the probes on this machine and fits what they measured.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/output_folder.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProbe = "trainyard-probe";

std::string samples_path(const CalibrateOptions& options) {
  if (!options.samples.empty()) return options.samples;
  return fs::path(options.output).replace_extension(".samples.jsonl").string();
}

std::string folder_of(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  return folder.empty() ? "." : folder.string();
}

void refuse_to_overwrite(const std::string& profile) {
  for (const char* extension : {".json", ".html", ".server.json"}) {
    const fs::path path = fs::path(profile).replace_extension(extension);
    std::error_code code;
    if (fs::exists(fs::symlink_status(path, code)))
      throw EnvironmentError(fmt::format("{}: exists; choose another -o or use --force",
                                         escape_control(path.string())));
  }
}

// The probe of processors is a script beside the configurations.
std::string cpu_probe() {
  const fs::path script =
      fs::path(scenario::configs_folder(".")).parent_path() / "calibrate/lab/calibrate_cpu.py";
  std::error_code code;
  if (!fs::is_regular_file(script, code))
    throw EnvironmentError(fmt::format(
        "there is no {}; run this from a checkout of trainyard, whose scripts measure processors",
        escape_control(script.string())));
  return script.string();
}

struct Probe {
  std::string program;
  std::vector<std::string> arguments;
};

std::string found_probe() {
  std::string path = find_program(kProbe);
  if (path.empty())
    throw EnvironmentError(
        "there are no probes: trainyard-probe stands neither beside trainyard nor in PATH; build "
        "it where nvcc is ('./dev calibrate' does), or on the GPU server from calibrate/probe (one "
        "line, docs/calibration.md), run it there and give its samples to 'trainyard fit'");
  return path;
}

std::vector<std::string> probe_arguments(const CalibrateOptions& options,
                                         const std::string& samples) {
  std::vector<std::string> words = {"--output", samples};
  const auto add = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    words.emplace_back(option);
    words.push_back(value);
  };
  add("--suite", options.suite);
  add("--devices", options.devices);
  add("--budget", options.budget);
  if (options.quick) words.emplace_back("--quick");
  return words;
}

Probe probe_of(const CalibrateOptions& options, const std::string& samples) {
  if (options.device == "gpu") return {found_probe(), probe_arguments(options, samples)};
  const std::string python = find_program("python3");
  if (python.empty()) throw EnvironmentError("python3 was not found, which measures processors");
  Probe probe{python, {"-B", cpu_probe(), "--output", samples}};
  if (options.quick) probe.arguments.emplace_back("--quick");
  for (const auto& [option, value] :
       {std::pair{"--threads", options.threads}, {"--budget", options.budget}}) {
    if (value.empty()) continue;
    probe.arguments.emplace_back(option);
    probe.arguments.push_back(value);
  }
  return probe;
}

void refuse_options_of_others(const CalibrateOptions& options) {
  if (options.device == "cpu" && !(options.suite.empty() && options.devices.empty()))
    throw UsageError("--suite and --devices are of GPUs; leave them out with --device cpu");
  if (options.device == "gpu" && !options.threads.empty())
    throw UsageError("--threads is of processors; add --device cpu");
}

std::uintmax_t size_of(const std::string& path) {
  std::error_code code;
  const std::uintmax_t size = fs::file_size(path, code);
  return code ? 0 : size;
}

// The exit code that ends the command, or nothing if there is something to fit.
std::optional<ExitCode> measure(const CalibrateOptions& options, const std::string& samples,
                                const Context& context) {
  const Probe probe = probe_of(options, samples);
  const std::uintmax_t before = size_of(samples);
  const ChildEnd end = run_program(probe.program, probe.arguments, context.interrupts);
  const bool measured = size_of(samples) != before;
  const std::string kept =
      measured ? fmt::format("; what was measured is kept in {0}: 'trainyard fit {0} -o {1}'",
                             escape_control(samples), escape_control(options.output))
               : "";
  if (end.signal != 0)
    throw EnvironmentError(fmt::format("{} was ended by signal {}{}", escape_control(probe.program),
                                       end.signal, kept));
  if (end.code == static_cast<int>(ExitCode::usage)) return ExitCode::usage;
  if (end.code == static_cast<int>(ExitCode::environment)) {
    // The probe has said what is missing.
    if (!measured) return ExitCode::environment;
    context.console.note("some suites failed; the profile is fitted on the others");
    return std::nullopt;
  }
  if (end.code != 0)
    throw EnvironmentError(
        fmt::format("{} ended with {}{}", escape_control(probe.program), end.code, kept));
  return std::nullopt;
}

}  // namespace

ExitCode calibrate(const CalibrateOptions& options, const Context& context) {
  if (fs::path(options.output).extension() != ".json" || fs::path(options.output).stem().empty())
    throw UsageError(fmt::format("'{}' is no name for a profile; write -o NAME.json",
                                 escape_control(options.output)));
  refuse_options_of_others(options);
  if (!options.force) refuse_to_overwrite(options.output);
  const std::string samples = samples_path(options);
  {
    // Nothing is measured that could not be written. Other files may stand in the folder: profiles
    // lie side by side.
    const OutputFolder folder(folder_of(options.output), true, context.interrupts,
                              FolderKind::files);
    if (const auto code = measure(options, samples, context)) return *code;
  }
  FitCommandOptions fitting;
  fitting.samples = {samples};
  fitting.output = options.output;
  fitting.base = options.base;
  fitting.gpu = options.gpu;
  fitting.json = options.json;
  fitting.force = true;  // asked above
  return fit(fitting, context);
}

}  // namespace trainyard::cli
