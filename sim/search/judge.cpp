#include "sim/search/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/out_of_range.h"
#include "sim/base/text.h"
#include "sim/scenario/loaded.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/sketch/job_bounds.h"

namespace trainyard::search {

using scenario::Objective;
using scenario::Scenario;
using scenario::SearchSpec;
using simulate::Job;
using simulate::JobBound;
using simulate::StepReport;

namespace {

std::optional<Bytes> limit_of(const SearchSpec& spec, Bytes capacity) {
  if (spec.memory) return spec.memory;
  return capacity > Bytes(0) ? std::optional(capacity) : std::nullopt;
}

// What is known of a step, or of the least of it.
struct Known {
  double seconds = 0, joules = 0;
  Bytes memory;
  double counted = 1;  // of its samples
};

double value_of(Objective objective, const Job& job, const Known& known) {
  const double gpus = job.plan.degrees.world_size();
  const double samples = known.counted * static_cast<double>(job.recipe.global_batch);
  const double training = std::ceil(job.length.samples / samples) * known.seconds;
  switch (objective) {
    case Objective::step_time: return known.seconds;
    case Objective::training_time: return training;
    case Objective::dollars: return training / 3600 * gpus * job.length.gpu_hour.value_or(0);
    case Objective::energy: return known.joules;
    case Objective::memory: return static_cast<double>(known.memory.count());
  }
  return 0;
}

std::string does_not_fit(std::string_view words, Bytes needed, Bytes limit) {
  return fmt::format("{} {}, and may take {}", words, to_text(needed), to_text(limit));
}

}  // namespace

struct Judge::Shared {
  Shared(const scenario::ScenarioSet& set, scenario::Places places)
      : changed(set.written, std::move(places)) {}

  // Bounds of jobs on the cluster of the file; those on another are asked for themselves.
  const simulate::JobBounds* bounds_of(const Scenario& scenario) const {
    return scenario.shared != nullptr && scenario.shared == of ? &*bounds : nullptr;
  }

  scenario::ChangedDocument changed;
  mutable simulate::PricedMachines machines;
  std::shared_ptr<const scenario::NetworkAndMachine> of;
  Job base;
  std::optional<simulate::JobBounds> bounds;
};

Judge::Judge(const scenario::ScenarioSet& set, const SearchSpec& spec, const Space& space)
    : set_(set),
      spec_(spec),
      space_(space),
      shared_(std::make_unique<Shared>(set, scenario::Places{set.base.configs, set.base.root})) {
  scenario::Loaded loaded = shared_->changed.with(json::Value::object());
  loaded.scenario.take_place_of(set.base);
  if (scenario::has_errors(loaded.diagnostics)) return;
  shared_->base = job_of(loaded.scenario, &shared_->machines);
  shared_->of = loaded.scenario.shared;
  shared_->bounds.emplace(shared_->base);
}

Judge::~Judge() = default;

Scenario Judge::scenario(std::uint64_t number) const {
  scenario::Loaded loaded = shared_->changed.with(space_.patch(space_.configuration(number)));
  loaded.scenario.take_place_of(set_.base);
  loaded.scenario.warnings = std::move(loaded.diagnostics);
  return std::move(loaded.scenario);
}

std::string Judge::unwanted(const Scenario& scenario) const {
  const std::int64_t batch = scenario.recipe.global_batch;
  if (spec_.least_batch && batch < *spec_.least_batch)
    return fmt::format("global batch below {}", *spec_.least_batch);
  if (spec_.most_batch && batch > *spec_.most_batch)
    return fmt::format("global batch above {}", *spec_.most_batch);
  return "";
}

Trial Judge::outlook(std::uint64_t number) const {
  Trial trial;
  trial.number = number;
  const Configuration configuration = space_.configuration(number);
  trial.why = configuration.impossible;
  if (!trial.why.empty()) return trial;
  if (configuration.same) {
    trial.verdict = Verdict::same;
    return trial;
  }
  scenario::Loaded loaded = shared_->changed.with(space_.patch(configuration));
  for (const Diagnostic& diagnostic : loaded.diagnostics) {
    if (!scenario::is_error(diagnostic)) continue;
    trial.why = diagnostic.pointer + ": " + diagnostic.message;
    return trial;
  }
  loaded.scenario.take_place_of(set_.base);
  trial.why = unwanted(loaded.scenario);
  trial.verdict = trial.why.empty() ? Verdict::slower : Verdict::unwanted;
  if (!trial.why.empty()) return trial;
  try {
    tell_bounds(loaded.scenario, job_of(loaded.scenario, &shared_->machines), trial);
  } catch (const ScenarioError& error) {
    trial.verdict = Verdict::invalid;
    trial.why = error.diagnostics().front().pointer + ": " + error.diagnostics().front().message;
  } catch (const OutOfRange& outgrown) {
    trial.verdict = Verdict::invalid;
    trial.why = outgrown.what();
  }
  return trial;
}

void Judge::tell_bounds(const Scenario& scenario, const Job& job, Trial& trial) const {
  const simulate::JobBounds* known = shared_->bounds_of(scenario);
  const JobBound bound = known != nullptr ? known->of(job) : simulate::JobBounds(job).of(job);
  trial.least_memory = bound.memory;
  if (const auto limit = limit_of(spec_, bound.capacity); limit && bound.memory > *limit) {
    trial.verdict = Verdict::does_not_fit;
    trial.why = does_not_fit("needs at least", bound.memory, *limit);
    return;
  }
  const double seconds = bound.seconds();
  if (spec_.step_time && seconds > Seconds(*spec_.step_time).count()) {
    trial.verdict = Verdict::unwanted;
    trial.why = fmt::format("a step above {}", to_text(*spec_.step_time));
    trial.least_step = to_duration(Seconds(seconds));
    return;
  }
  // Whatever GPUs do, they take no less than when they do nothing.
  const double watts = job.cluster.server.gpu.idle_power.count();
  const double joules = seconds * watts * job.plan.degrees.world_size();
  for (const Objective objective : spec_.objectives)
    trial.least.push_back(value_of(objective, job, {seconds, joules, bound.memory}));
  trial.causes.resize(kCauses);
  const auto set = [&](Cause cause, double value) {
    trial.causes[static_cast<std::size_t>(cause)] = value;
  };
  set(Cause::compute, bound.kernels - bound.repeated);
  set(Cause::recompute, bound.repeated);
  set(Cause::tensor, bound.waits);
  set(Cause::bubble, bound.fill);
  set(Cause::update, bound.update);
}

void Judge::simulate(Trial& trial) const {
  Scenario changed = scenario(trial.number);
  // Its energy is known where the length of the training is.
  const bool wants_energy = std::find(spec_.objectives.begin(), spec_.objectives.end(),
                                      Objective::energy) != spec_.objectives.end();
  if (wants_energy && changed.length.samples <= 0)
    changed.length.samples = static_cast<double>(changed.recipe.global_batch);
  StepReport report;
  try {
    report = simulate::simulate(changed, {.timeline = false,
                                          .machines = &shared_->machines,
                                          .interval = false,
                                          .standing = !wants_energy})
                 .report;
  } catch (const ScenarioError& error) {
    trial.verdict = Verdict::invalid;
    trial.why = error.diagnostics().front().pointer + ": " + error.diagnostics().front().message;
    return;
  }
  if (report.deadlock) {
    trial.verdict = Verdict::never_ends;
    trial.why = "never ends";
    return;
  }
  TrialResult result{report.simulated_step, report.memory.peak - report.memory.late, report.mfu,
                     report.breakdown};
  const auto limit = limit_of(spec_, report.memory.capacity);
  if (!report.fits || (limit && result.memory > *limit)) {
    trial.verdict = Verdict::does_not_fit;
    trial.why =
        limit ? does_not_fit("needs", result.memory, *limit) : "the servers' memory is too small";
    return;
  }
  if (report.memory.is_tight) {
    trial.verdict = Verdict::does_not_fit;
    trial.why =
        "tight: " + does_not_fit("would hold", report.memory.wanted, report.memory.capacity);
    return;
  }
  if (spec_.step_time && result.step > *spec_.step_time) {
    trial.verdict = Verdict::unwanted;
    trial.why = fmt::format("a step above {}", to_text(*spec_.step_time));
    trial.result = result;
    return;
  }
  if (wants_energy && !report.energy) {
    trial.verdict = Verdict::invalid;
    trial.why = "/cluster/node/gpu/power: is not known, and energy is asked for";
    return;
  }
  trial.verdict = Verdict::simulated;
  const Job job = job_of(changed, &shared_->machines);
  for (const Objective objective : spec_.objectives)
    trial.objectives.push_back(
        value_of(objective, job,
                 {Seconds(result.step).count(), report.energy ? report.energy->joules : 0,
                  result.memory, report.counted}));
  trial.result = result;
}

}  // namespace trainyard::search
