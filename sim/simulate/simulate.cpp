#include "sim/simulate/simulate.h"

#include <fmt/format.h>

#include <filesystem>

#include "sim/base/diagnostic.h"
#include "sim/base/out_of_range.h"
#include "sim/scenario/sources.h"
#include "sim/simulate/outlook/published.h"
#include "sim/simulate/pricing.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/report/utilisation.h"

namespace trainyard::simulate {

Job job_of(const scenario::Scenario& scenario) {
  Job job;
  job.network = scenario.network;
  job.cluster = scenario.cluster;
  job.recipe = scenario.recipe;
  job.plan = scenario.plan;
  job.stragglers = scenario.stragglers;
  job.compute_jitter = scenario.compute_jitter;
  job.collectives = scenario.collectives;
  job.fidelity = scenario.fidelity;
  job.length = scenario.length;
  Pricing pricing =
      pricing_of(scenario.profile, job.cluster.server, scenario::configs_folder(scenario.file));
  job.profile = std::move(pricing.profile);
  job.uncalibrated = std::move(pricing.uncalibrated);
  job.cluster.server.gpu.multiprocessors = pricing.multiprocessors;
  const std::string& gpu = job.cluster.server.gpu.name;
  if (!job.profile || scenario.profile.of_kind || job.uncalibrated.empty()) return job;
  if (job.profile->gpu != gpu && !scenario.profile_of_other_gpu) {
    Diagnostic mismatch;
    mismatch.at.file = scenario.file;
    mismatch.pointer = "/cluster/calibration";
    mismatch.message = fmt::format("profile '{}' was made on {}, the cluster has {}",
                                   job.profile->name, job.profile->gpu, gpu);
    mismatch.hint =
        "name a profile of that GPU, leave the key out to use those of its kind, or set "
        "cluster.calibration_of_other_gpu to use it as an extrapolation";
    throw ScenarioError({mismatch});
  }
  job.warnings.push_back(
      job.profile->gpu != gpu
          ? fmt::format("profile {} was made on {}, the cluster has {}: every estimate is an "
                        "extrapolation",
                        job.profile->name, job.profile->gpu, gpu)
          : fmt::format("the cluster has {}: every estimate is an extrapolation",
                        job.uncalibrated));
  return job;
}

std::unique_ptr<Step> step_of(const scenario::Scenario& scenario, const Job& job,
                              const StepOptions& options) {
  try {
    return simulate_step(job, options);
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
  const bool by_profile = !scenario.profile.path.empty();
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

// What is known of how far off estimates like this one are.
void add_interval(const scenario::Scenario& scenario, const Job& job, StepReport& report) {
  report.estimate_class = {std::string(job.network.words()), job.uncalibrated.empty(),
                           job.cluster.servers == 1};
  const std::string path =
      scenario::preset_path(scenario::configs_folder(scenario.file), "accuracy", "steps");
  if (!report.step_time || !scenario::is_file(path)) return;
  report.interval = interval(read_errors(path), report.estimate_class, *report.step_time);
}

}  // namespace

Simulation simulate(const scenario::Scenario& scenario, const SimulateOptions& options) {
  const Job job = job_of(scenario);
  const std::unique_ptr<Step> step =
      step_of(scenario, job,
              {.unfold = options.unfold || !scenario.exploit_symmetry,
               .run = true,
               .detail = options.timeline ? Detail::timeline : Detail::summary});
  Simulation simulation;
  simulation.report = summarize(job, *step);
  if (const auto fastest = find_contradiction(job, *step, simulation.report))
    refuse_contradiction(scenario, *fastest);
  add_interval(scenario, job, simulation.report);
  simulation.report.name = scenario.variant.empty() ? scenario.name : scenario.variant;
  simulation.report.label = scenario.label;
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
  if (options.timeline) simulation.timeline = timeline(*step, options.timeline_ranks);
  return simulation;
}

}  // namespace trainyard::simulate
