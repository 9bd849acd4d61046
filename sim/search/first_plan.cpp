#include "sim/search/first_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/transformer/networks.h"
#include "sim/base/divide.h"
#include "sim/json/parse.h"
#include "sim/search/ways_to_fit.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"

namespace trainyard::search {

using json::Value;
using scenario::Scenario;
using simulate::StepReport;

namespace {

struct Degrees {
  int tensor = 1, pipeline = 1, data = 1, expert = 1;
};

class PlanSearch {
 public:
  PlanSearch(const Scenario& start, const FirstPlanOptions& options)
      : start_(start), options_(options), gpus_(start.plan.degrees.world_size()) {}

  FirstPlan run() {
    int products_after = 0;
    for (const std::int64_t product : divisors(gpus_)) {
      for (const std::int64_t tensor : divisors(product))
        try_degrees(static_cast<int>(tensor), static_cast<int>(product / tensor));
      if (fits_plainly_ && ++products_after == 2) break;
    }
    if (best_)
      enlarge_micro_batch();
    else
      go_on_from_closest();
    FirstPlan found{std::move(best_), std::nullopt, simulated_};
    if (!found.best) found.closest = std::move(closest_);
    return found;
  }

 private:
  bool may_simulate() const {
    return simulated_ < options_.most_trials && spent_ < options_.most_events;
  }

  // Tensor parallelism stays in a server, whose links are made for it (Narayanan et al. 2021,
  // takeaway 1).
  void try_degrees(int tensor, int pipeline) {
    const int per_server = start_.cluster.used_on(0);
    if (per_server % tensor != 0) return;
    if (pipeline > 1 && !start_.network.pipeline()) return;
    const Degrees degrees{tensor, pipeline, gpus_ / tensor / pipeline, 1};
    for (const int expert : expert_degrees(degrees))
      for (const char* kind : kinds_of(degrees)) {
        Degrees with = degrees;
        with.expert = expert;
        try_recomputing(with, kind);
      }
  }

  // Each expert on one rank of a server, of all servers, or none of them divided.
  std::vector<int> expert_degrees(const Degrees& degrees) const {
    const auto* network = start_.network.find<models::Transformer>();
    if (network == nullptr || network->moe.experts == 0) return {1};
    std::vector<int> found = {1};
    const int replica = degrees.tensor * degrees.data;
    for (const int ranks : {start_.cluster.used_on(0), 32, 64})
      if (ranks > found.back() && replica % ranks == 0 && network->moe.experts % ranks == 0)
        found.push_back(ranks);
    return found;
  }

  // Replicas that gather their parameters in every pass do so for every micro-batch of a pipeline.
  static std::vector<const char*> kinds_of(const Degrees& degrees) {
    if (degrees.data == 1) return {"allreduce"};
    if (degrees.pipeline > 1) return {"distributed_optimizer"};
    return {"allreduce", "distributed_optimizer", "fsdp"};
  }

  void try_recomputing(const Degrees& degrees, const char* kind) {
    for (const bool recompute : {false, true}) {
      Value patch = patch_of(degrees, kind);
      if (recompute) json::set(patch, "/training/recompute", Value::of("full"));
      const std::optional<PlanTrial> trial = simulate(patch);
      if (!trial) return;
      consider(*trial);
      if (!trial->outline.has_room()) continue;
      fits_plainly_ = fits_plainly_ || !recompute;
      return;
    }
  }

  Value patch_of(const Degrees& degrees, const char* kind) const {
    Value patch = Value::object();
    const auto say = [&](const char* key, Value value) {
      json::set(patch, fmt::format("/parallelism/{}", key), std::move(value));
    };
    if (degrees.tensor > 1) say("tp", Value::of(degrees.tensor));
    if (degrees.tensor > 1 && start_.network.stack() != nullptr)
      say("sequence_parallel", Value::of(true));
    if (degrees.pipeline > 1) say("pp", Value::of(degrees.pipeline));
    say("dp", Value::of(degrees.data));
    if (degrees.expert > 1) say("ep", Value::of(degrees.expert));
    if (degrees.data > 1) say("data_parallel/kind", Value::of(kind));
    return patch;
  }

  // Nothing: the scenario cannot be changed like this, or there has been enough.
  std::optional<PlanTrial> simulate(const Value& patch) {
    if (!may_simulate()) return std::nullopt;
    const std::optional<Scenario> changed = with_patch(start_, patch);
    if (!changed) return std::nullopt;
    if (options_.progress)
      options_.progress(fmt::format("looking for a plan: {} simulated", simulated_));
    try {
      const simulate::Job job = simulate::job_of(*changed);
      const std::unique_ptr<simulate::Step> step = simulate::step_of(
          *changed, job, {.unfold = false, .run = true, .detail = simulate::Detail::outline});
      PlanTrial trial{patch, outline(job, *step)};
      ++simulated_;
      spent_ += trial.outline.events;
      if (trial.outline.deadlock) return std::nullopt;
      return trial;
    } catch (const ScenarioError&) {
      return std::nullopt;
    }
  }

  bool is_better(const PlanTrial& trial) const {
    return trial.outline.has_room() &&
           (!best_ || trial.outline.simulated_step < best_->outline.simulated_step);
  }

  void consider(const PlanTrial& trial) {
    if (is_better(trial)) best_ = trial;
    if (!closest_ || trial.outline.memory.wanted < closest_->outline.memory.wanted)
      closest_ = trial;
  }

  void enlarge_micro_batch() {
    const auto replicas = json::find_integer(*json::find(best_->patch, "/parallelism/dp"));
    for (const std::int64_t larger : divisors(start_.recipe.global_batch / replicas.value())) {
      if (larger <= start_.recipe.micro_batch.size) continue;
      Value patch = best_->patch;
      json::set(patch, "/training/micro_batch", Value::of(larger));
      const std::optional<PlanTrial> trial = simulate(patch);
      if (!trial || !is_better(*trial)) return;
      best_ = trial;
    }
  }

  void go_on_from_closest() {
    if (!closest_) return;
    const Value leanest = closest_->patch;
    const std::optional<Scenario> changed = with_patch(start_, leanest);
    const StepReport report = simulate::simulate(*changed, {.timeline = false}).report;
    if (options_.progress) options_.progress("looking for ways to fit");
    const simulate::WaysToFit ways = ways_to_fit(*changed, report, {});
    simulated_ += ways.simulated;
    for (const simulate::WayToFit& way : ways.ways) {
      Value patch = leanest;
      for (const simulate::ChangedValue& change : way.changes) {
        std::vector<Diagnostic> none;
        json::set(patch, change.pointer, json::parse_text(change.to, "", none));
      }
      PlanTrial trial{patch, report};
      trial.outline.fits = true;
      trial.outline.memory.is_tight = false;
      trial.outline.simulated_step = way.step_time;
      trial.outline.memory.peak = trial.outline.memory.wanted = way.peak;
      consider(trial);
    }
  }

  const Scenario& start_;
  const FirstPlanOptions& options_;
  const int gpus_;
  std::optional<PlanTrial> best_, closest_;
  bool fits_plainly_ = false;  // a trial without recomputation does
  int simulated_ = 0;
  std::uint64_t spent_ = 0;
};

}  // namespace

FirstPlan first_plan(const Scenario& start, const FirstPlanOptions& options) {
  return PlanSearch(start, options).run();
}

}  // namespace trainyard::search
