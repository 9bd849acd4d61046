#include "calibrate/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "calibrate/fit/fitting.h"
#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/base/version.h"

namespace trainyard::fit {
namespace {

[[noreturn]] void refuse(const Position& at, std::string message, std::string hint) {
  Diagnostic diagnostic;
  diagnostic.at = at;
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  throw ScenarioError({std::move(diagnostic)});
}

// The one kind of GPU that all samples are of.
std::string device_of(const fit::Samples& samples, const std::vector<std::string>& paths) {
  std::map<std::string, Position> devices;
  for (const fit::Sample& sample : samples.samples)
    devices.try_emplace(samples.machines[sample.machine].gpus[static_cast<std::size_t>(sample.gpu)],
                        sample.at);
  const Position file = {paths.empty() ? "" : paths.front(), 0, 0};
  if (devices.empty())
    refuse(file, "there are no measurements", "run trainyard calibrate, or name other files");
  if (devices.size() == 1) return devices.begin()->first;
  std::string names;
  for (const auto& [device, at] : devices)
    names += fmt::format("{}'{}' ({}:{})", names.empty() ? "" : ", ", escape_control(device),
                         escape_control(at.file), at.line);
  refuse(file, "the samples are of several kinds of GPU: " + names,
         "fit each kind by itself: a profile is of one GPU");
}

// The machine line that stands for all: the latest run's, and of equal dates the last by its facts.
const fit::Machine& latest(const std::vector<fit::Machine>& machines) {
  return *std::max_element(machines.begin(), machines.end(),
                           [](const fit::Machine& a, const fit::Machine& b) {
                             return std::tie(a.date, a.facts) < std::tie(b.date, b.facts);
                           });
}

cost::Calibration calibration_of(const FitResult& result, const fit::Machine& machine) {
  cost::Calibration calibration;
  calibration.program = "trainyard " + std::string(kVersion);
  if (!machine.probe.empty()) calibration.program += ", measured by " + machine.probe;
  calibration.machine = fmt::format("{} x {}", machine.gpus.size(), result.device);
  calibration.date = machine.date.empty() ? "not said" : machine.date;
  calibration.driver = machine.driver.empty() ? "not said" : machine.driver;
  calibration.cuda = machine.cuda.empty() ? "not said" : machine.cuda;
  calibration.samples = static_cast<int>(result.records.size());
  calibration.errors = fit::errors_by_group(result.records);
  for (const FitRecord& r : result.records)
    if (r.fate == SampleFate::rejected)
      calibration.rejected.push_back(fmt::format("{} {}: measured {:.4g} us, fitted {:.4g} us ({})",
                                                 r.group, r.shape, r.measured_us, r.fitted_us,
                                                 r.reason));
  return calibration;
}

// A profile that no scenario could read is none.
void refuse_unreadable(const FitResult& result, const std::string& path) {
  std::vector<Diagnostic> problems = cost::profile_problems(result.profile);
  if (problems.empty()) return;
  for (Diagnostic& problem : problems) {
    problem.at = {path, 0, 0};
    problem.message = fmt::format("fitted {}: {}", problem.pointer, problem.message);
    problem.pointer.clear();
    problem.hint = "look for samples whose times or sizes are far off";
  }
  throw ScenarioError(std::move(problems));
}

}  // namespace

FitResult fit_samples(const std::vector<std::string>& paths, const FitOptions& options) {
  TRAINYARD_CHECK(options.find_gpu != nullptr, "nobody can say which GPU it is");
  fit::Samples read = fit::read_samples(paths);
  FitResult result;
  result.warnings = std::move(read.warnings);
  result.device = device_of(read, paths);
  const std::optional<FitGpu> gpu = options.find_gpu(result.device);
  if (!gpu)
    refuse(read.samples.front().at,
           fmt::format("no preset is known for '{}'", escape_control(result.device)),
           "name one with --gpu, or write a configs/gpus/*.json with its datasheet");
  const fit::Machine machine = latest(read.machines);
  result.machine = machine.facts;
  result.profile.name = options.name.empty() ? gpu->name : options.name;
  result.profile.gpu = gpu->name;

  const std::vector<fit::Sample> samples = fit::merge_repeats(std::move(read.samples));
  const fit::Fitting fitting{options, *gpu, samples, machine, result};
  fit::fit_gemm(fitting);
  fit::fit_memory(fitting);
  fit::fit_attention(fitting);
  fit::fit_convolution(fitting);
  fit::fit_collectives(fitting);
  fit::fit_collective_start(fitting);
  fit::fit_point_to_point(fitting);
  fit::fit_copies(fitting);
  fit::fit_launch(fitting);
  fit::fit_overlap(fitting);
  fit::carry_over(fitting);
  std::stable_sort(result.records.begin(), result.records.end(),
                   [](const FitRecord& a, const FitRecord& b) {
                     return std::tie(a.group, a.size, a.shape) < std::tie(b.group, b.size, b.shape);
                   });
  result.profile.calibration = calibration_of(result, machine);
  refuse_unreadable(result, paths.front());
  return result;
}

}  // namespace trainyard::fit
