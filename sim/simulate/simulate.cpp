#include "sim/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/layer/peak.h"
#include "sim/base/diagnostic.h"
#include "sim/base/out_of_range.h"
#include "sim/base/text.h"
#include "sim/cost/borrowed/sustained.h"
#include "sim/scenario/sources.h"
#include "sim/simulate/jobs_together.h"
#include "sim/simulate/outlook/published.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/report/utilisation.h"

namespace trainyard::simulate {

namespace {

// Shares of the peak that the scenario itself says of types whose laws are not made from them.
void warn_of_unused_shares(const scenario::Scenario& scenario, Job& job) {
  const std::vector<topologies::GpuKind> kinds = topologies::gpu_kinds(job.cluster);
  const std::vector<std::string> pointers = scenario::gpu_pointers(job.cluster);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    for (const models::Dtype dtype : models::kDtypes) {
      const std::string pointer = fmt::format("{}/sustained/{}", pointers[kind], name(dtype));
      const json::Value* said = json::find(scenario.document, pointer);
      if (said == nullptr || scenario::is_preset_file(said->at.position().file, scenario.configs))
        continue;
      const topologies::GpuSpec& gpu = *kinds[kind].gpu;
      if (models::peak_of(gpu.sustained, dtype) == 0) continue;
      const auto& profile = job.prices[kind].profile;
      if (!profile)
        job.warnings.push_back(pointer + " changes nothing: datasheets are taken as they are");
      else if (has_fitted_law(*profile, peaks(gpu), dtype))
        job.warnings.push_back(
            fmt::format("{} changes nothing: the profile {} has a law of {} products; "
                        "cluster.calibration takes others",
                        pointer, profile->name, name(dtype)));
    }
}

}  // namespace

Job job_of(const scenario::Scenario& scenario, PricedMachines* machines) {
  Job job;
  job.network = scenario.network;
  job.recipe = scenario.recipe;
  job.plan = scenario.plan;
  job.stragglers = scenario.stragglers;
  job.compute_jitter = scenario.compute_jitter;
  job.collectives = scenario.collectives;
  job.fidelity = scenario.fidelity;
  job.length = scenario.length;
  for (const scenario::OtherJob& other : scenario.other_jobs) {
    job.others.push_back({other.name, job_of(other.scenario, machines)});
    job.others.back().job.compute_jitter = scenario.compute_jitter;
  }
  PricedMachines own;
  const auto machine = (machines != nullptr ? *machines : own).of(scenario);
  job.cluster = machine->cluster;
  job.prices = machine->prices;
  job.works = machine->works;
  warn_of_unused_shares(scenario, job);
  // What the file names is the profile of the first kind of GPUs.
  const auto& [profile, uncalibrated] = job.prices.front();
  const std::string& gpu = job.cluster.server.gpu.name;
  if (!profile || scenario.profiles.front().of_kind || uncalibrated.empty()) return job;
  if (profile->gpu != gpu && !scenario.profile_of_other_gpu) {
    Diagnostic mismatch;
    mismatch.at.file = scenario.file;
    mismatch.pointer = "/cluster/calibration";
    mismatch.message = fmt::format("profile '{}' was made on {}, the cluster has {}", profile->name,
                                   profile->gpu, gpu);
    mismatch.hint =
        "name a profile of that GPU, leave the key out to use those of its kind, or set "
        "cluster.calibration_of_other_gpu to use it as an extrapolation";
    throw ScenarioError({mismatch});
  }
  job.warnings.push_back(
      profile->gpu != gpu
          ? fmt::format("profile {} was made on {}, the cluster has {}: every estimate is an "
                        "extrapolation",
                        profile->name, profile->gpu, gpu)
          : fmt::format("the cluster has {}: every estimate is an extrapolation", uncalibrated));
  return job;
}

std::unique_ptr<Step> step_of(const scenario::Scenario& scenario, const Job& job,
                              const StepOptions& options) {
  try {
    return simulate_step(job, options);
  } catch (const UnlikeSteps& unlike) {
    Diagnostic diagnostic;
    diagnostic.pointer = fmt::format("/other_jobs/{}", unlike.other);
    diagnostic.message = unlike.what();
    diagnostic.hint = "simulate the jobs one by one, or bring their batches closer together";
    const json::Value* value = json::find(scenario.document, diagnostic.pointer);
    if (value != nullptr) diagnostic.at = value->at.position();
    throw ScenarioError({diagnostic});
  } catch (const OutOfRange& outgrown) {
    Diagnostic diagnostic;
    diagnostic.pointer = "/training";
    diagnostic.message = outgrown.what();
    diagnostic.hint = "look for a size, a length or a rate that is far off";
    const json::Value* value = json::find(scenario.document, diagnostic.pointer);
    if (value != nullptr) diagnostic.at = value->at.position();
    throw ScenarioError({diagnostic});
  } catch (const lower::UnsupportedCollective& refused) {
    Diagnostic diagnostic;
    diagnostic.pointer = refused.protocol ? scenario::protocol_pointer(refused.kind)
                                          : scenario::algorithm_pointer(refused.kind);
    diagnostic.message = refused.message;
    diagnostic.hint = refused.hint;
    const json::Value* value = json::find(scenario.document, diagnostic.pointer);
    if (value != nullptr) diagnostic.at = value->at.position();
    throw ScenarioError({diagnostic});
  }
}

namespace {

// A step that does more than the machine can is not reported.
void refuse_contradiction(const scenario::Scenario& scenario, const FasterThanPeak& fastest) {
  Diagnostic diagnostic;
  const bool by_profile = !scenario.profiles.front().path.empty();
  diagnostic.pointer = !by_profile ? "/cluster/node/gpu/peak" : "/cluster/calibration";
  const json::Value* value = json::find(scenario.document, diagnostic.pointer);
  diagnostic.at = value != nullptr ? value->at.position() : Position{scenario.file, 0, 0};
  diagnostic.message = fmt::format(
      "the step would do more than the GPUs can: {} reaches {:.4g} TFLOP/s by {}, and the peak of "
      "{} is {:.4g} TFLOP/s",
      fastest.kernel, fastest.reached.count() / 1e12,
      by_profile ? "the profile" : "its own type's peak", name(scenario.recipe.precision.compute),
      fastest.peak.count() / 1e12);
  diagnostic.hint = "correct cluster.node.gpu.peak, or name a profile of this GPU";
  throw ScenarioError({diagnostic});
}

// Spans of a timeline are kept, however often they repeat.
void refuse_long_timeline(const scenario::Scenario& scenario) {
  const std::int64_t passes = timeline_passes(scenario);
  if (passes <= kMostTimelinePasses) return;
  Diagnostic diagnostic;
  diagnostic.pointer = "/training/global_batch";
  const json::Value* value = json::find(scenario.document, diagnostic.pointer);
  diagnostic.at = value != nullptr ? value->at.position() : Position{scenario.file, 0, 0};
  diagnostic.message =
      fmt::format("a timeline would show {} passes of a layer, at most {} are shown", passes,
                  kMostTimelinePasses);
  diagnostic.hint = "without a timeline (no -o and no --monitor) the step is simulated";
  throw ScenarioError({diagnostic});
}

// What is known of how far off estimates like this one are.
void add_interval(const scenario::Scenario& scenario, const Job& job, StepReport& report) {
  report.estimate_class = {std::string(job.network.words()), report.uncalibrated.empty(),
                           job.cluster.servers == 1};
  const std::string path = scenario::preset_path(scenario.configs, "accuracy", "steps");
  // How much longer a tight step takes nobody knows.
  if (!report.step_time || report.memory.is_tight || !scenario::is_file(path)) return;
  // All published steps are of GPUs.
  if (topologies::device_in_a_word(job.cluster) != "GPU") return;
  report.interval = interval(read_errors(path), report.estimate_class, *report.step_time);
}

// Lowers the power of GPUs that would grow too hot, and need be throttled, to that at which they
// settle at their limit. Returns whether there are any.
bool throttle(const StepReport& report, Job& job) {
  bool any = false;
  if (!report.energy) return any;
  for (std::size_t kind = 0; kind < report.energy->watts_by_gpu_kind.size(); ++kind) {
    topologies::GpuSpec& gpu = gpu_of_kind(job.cluster, static_cast<int>(kind));
    if (!gpu.cooling || !gpu.cooling->throttle) continue;
    const topologies::Cooling& cooling = *gpu.cooling;
    const double settled =
        cooling.settled(Watts(report.energy->watts_by_gpu_kind[kind]), gpu.busy_power);
    if (settled <= *cooling.limit) continue;
    gpu.power_limit =
        (*cooling.limit - cooling.inlet) / (cooling.busy - cooling.inlet) * gpu.busy_power;
    for (OtherJob& other : job.others)  // which are taken to heat theirs as much
      gpu_of_kind(other.job.cluster, static_cast<int>(kind)).power_limit = gpu.power_limit;
    job.warnings.push_back(
        fmt::format("{} would settle at {:.0f} degrees Celsius, above their limit of {:.0f}: "
                    "products run as at {:.0f} W",
                    report.energy->watts_by_gpu_kind.size() == 1 ? "GPUs" : gpu.name, settled,
                    *cooling.limit, gpu.power_limit.count()));
    any = true;
  }
  return any;
}

bool may_throttle(const Job& job) {
  const std::vector<topologies::GpuKind> kinds = topologies::gpu_kinds_in_use(job.cluster);
  return std::any_of(kinds.begin(), kinds.end(), [](const topologies::GpuKind& kind) {
    return kind.gpu->cooling && kind.gpu->cooling->throttle;
  });
}

// Simulates the job, and again with slower products if its GPUs would grow too hot.
std::unique_ptr<Step> throttled_step(const scenario::Scenario& scenario, Job& job,
                                     const StepOptions& options, StepReport& report) {
  std::unique_ptr<Step> step = step_of(scenario, job, options);
  if (options.detail == Detail::standing) {
    report = standing(job, *step);
    return step;
  }
  report = summarize(job, *step);
  if (!throttle(report, job)) return step;
  step = step_of(scenario, job, options);
  report = summarize(job, *step);
  return step;
}

Monitor monitor_of(const Job& job, const Step& step, const Timeline& timeline,
                   const std::optional<Duration>& interval) {
  const Duration length = step.window.length();
  if (interval && (*interval > length || length / *interval >= kMostMonitorSamples))
    throw BadMonitorInterval(*interval, length);
  return monitor(job, step, timeline, interval);
}

}  // namespace

std::int64_t timeline_passes(const scenario::Scenario& scenario) {
  return std::int64_t{plan::microbatches(scenario.recipe, scenario.plan)} *
         scenario.network.chain().places;
}

BadMonitorInterval::BadMonitorInterval(Duration interval, Duration step)
    : OutOfRange(interval > step
                     ? fmt::format("an interval of {} is longer than the step of {}",
                                   to_text(interval), to_text(step))
                     : fmt::format("an interval of {} makes more than {} samples of a step of {}",
                                   to_text(interval), kMostMonitorSamples, to_text(step))) {}

Simulation simulate(const scenario::Scenario& scenario, const SimulateOptions& options) {
  if (options.timeline) refuse_long_timeline(scenario);
  Job job = job_of(scenario, options.machines);
  Simulation simulation;
  const Detail detail = options.timeline                         ? Detail::timeline
                        : options.standing && !may_throttle(job) ? Detail::standing
                                                                 : Detail::summary;
  const std::unique_ptr<Step> step =
      throttled_step(scenario, job,
                     {.unfold = options.unfold || !scenario.exploit_symmetry,
                      .run = true,
                      .detail = detail,
                      .shown = options.shown,
                      .monitor = options.monitor,
                      .skip_periods = scenario.exploit_periodicity},
                     simulation.report);
  if (const auto fastest = find_contradiction(job, *step, simulation.report))
    refuse_contradiction(scenario, *fastest);
  if (options.interval) add_interval(scenario, job, simulation.report);
  simulation.report.name = scenario.variant.empty() ? scenario.name : scenario.variant;
  simulation.report.label = scenario.label;
  if (!simulation.report.jobs.empty()) simulation.report.jobs.front().name = scenario.name;
  simulation.report.description = scenario.description;
  simulation.report.assumed = scenario.assumed;
  simulation.report.software = scenario.software;
  simulation.report.habits = scenario.habits;
  for (const std::string& warning : job.warnings)
    simulation.report.warnings.push_back(warning);
  for (Diagnostic warning : scenario.warnings) {
    // Results do not tell where their maker keeps files.
    if (warning.at.line > 0)
      warning.at.file = std::filesystem::path(warning.at.file).filename().string();
    simulation.report.warnings.push_back(to_text(warning));
  }
  for (const scenario::Reference& reference : scenario.references)
    simulation.report.published.push_back({reference.label, reference.metric, reference.value,
                                           metric_of(simulation.report, reference.metric)});
  if (options.timeline) simulation.timeline = timeline(*step, options.shown);
  if (options.monitor && !simulation.report.deadlock)
    simulation.report.monitor =
        monitor_of(job, *step, simulation.timeline, options.monitor_interval);
  return simulation;
}

}  // namespace trainyard::simulate
