#include "sim/simulate/step_maker.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "sim/simulate/device_memory.h"
#include "sim/simulate/pass_times.h"
#include "sim/simulate/stage_gpus.h"

namespace trainyard::simulate {

namespace {

// The schedule with whose passes that of the plan is estimated; empty: it needs no times.
std::string_view times_from(const recipe::ParallelPlan& plan) {
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(plan.pipeline.schedule);
  return schedule != nullptr ? schedule->times_from : std::string_view();
}

Duration launch_time(const Job& job, const topologies::ServerSpec& server,
                     const cost::Profile* profile) {
  const double factor = server.host_launch_factor;
  if (job.recipe.launch_time) return to_duration(factor * Seconds(*job.recipe.launch_time));
  return profile != nullptr ? to_duration(factor * profile->launch) : Duration(0);
}

// Tables of transfers that no actor before `actors` uses are nobody's that is told of.
void forget_transfers_from(std::size_t actors, lower::Lowered& lowered) {
  const engine::Machine& machine = lowered.machine;
  std::vector<bool> used(lowered.transfers.size(), false);
  for (std::size_t at = 0; at < actors; ++at) {
    const engine::Actor& actor = machine.actors[static_cast<engine::ActorId>(at)];
    for (const engine::CommunicatorId group : actor.communicators)
      if (group != engine::kNoCommunicator) used[machine.communicators[group].transfers] = true;
    for (const engine::ChannelId channel : actor.channels)
      if (channel != engine::kNoChannel) used[machine.channels[channel].transfers] = true;
  }
  for (std::size_t table = 0; table < used.size(); ++table)
    if (!used[table]) lowered.transfers[table].clear();
}

}  // namespace

Costs costs_of(const Job& job) {
  Costs costs;
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const cost::Profile* profile = job.profile_of(static_cast<int>(kind));
    const cost::MachinePeaks gpu = peaks(*kinds[kind].gpu);
    costs.compute.push_back(profile != nullptr ? fitted_compute_cost(*profile, gpu)
                                               : roofline_compute_cost(gpu));
    const cost::OverlapLaw overlap =
        profile != nullptr && profile->overlap ? *profile->overlap : cost::OverlapLaw{};
    const Duration host = launch_time(job, *kinds[kind].server, profile);
    const bool is_cpu = kinds[kind].gpu->is_cpu();
    costs.laws.push_back({.compute = costs.compute.back().get(),
                          .launch = is_cpu ? Duration(0) : host,
                          .call = is_cpu ? host : Duration(0),
                          .gemm_weight = overlap.gemm,
                          .memory_bound_weight = overlap.memory_bound});
    if (profile != nullptr) costs.laws.back().host_copies = profile->host_copies;
    costs.collective_channels.push_back(profile != nullptr ? profile->collective_channels : 0);
    costs.communication_share = std::min(costs.communication_share, overlap.communication);
  }
  costs.messages = message_cost(job.prices);
  return costs;
}

lower::DevicePlacement placement_of(const Job& job, const plan::Cast& cast) {
  return job.gpus_taken.empty() ? lower::in_order(cast, job.cluster)
                                : lower::in_order(cast, job.cluster, job.gpus_taken);
}

StepMaker::StepMaker(const Job& job, const StepOptions& options)
    : job_(job), unfold_(options.unfold), blocks_(options.blocks), costs_(costs_of(job)) {
  if (job.fidelity == recipe::Fidelity::flow) topology_.emplace(job.cluster);
}

lower::Lowered StepMaker::lowered(const plan::Cast& cast, const lower::DevicePlacement& placement,
                                  std::vector<recipe::Straggler> slow) const {
  return lower::lower(cast, placement, job_.cluster, topology_ ? &*topology_ : nullptr, costs_.laws,
                      *costs_.messages,
                      {.fidelity = job_.fidelity,
                       .fold = !unfold_,
                       .stragglers = std::move(slow),
                       .slowdown = slowest_gpu(job_).slowdown,
                       .communication_share = costs_.communication_share,
                       .algorithms = job_.collectives});
}

void StepMaker::plan(Step& step) const {
  const std::optional<plan::Batches> batches = split_batch(job_, costs_.laws);
  const plan::Batches* sizes = batches ? &*batches : nullptr;
  step.work = work_of(job_, sizes ? sizes->sizes.front() : job_.recipe.micro_batch.size.value());
  const std::vector<plan::StageGpus> gpus =
      stage_gpus(job_, *step.work, costs_.laws, *costs_.messages);
  PipelineEstimate estimate;
  if (const std::string_view other = times_from(job_.plan); !other.empty()) {
    recipe::ParallelPlan trial = job_.plan;
    trial.pipeline.schedule = other;
    const plan::StepPlan plan = plan::plan_step(*step.work, job_.recipe, trial, {}, gpus, sizes);
    Step tried;
    tried.plan = plan;
    place(tried);
    estimate = estimate_passes(tried.plan, tried.lowered);
  }
  step.plan = plan::plan_step(*step.work, job_.recipe, job_.plan,
                              {estimate.times, estimate.memory_limits}, gpus, sizes, blocks_);
}

// What is left of each device for what its program holds.
void StepMaker::limit_memory(Step& step) const {
  lower::Lowered& lowered = step.lowered;
  step.devices = device_memory(step.plan.cast, step.placement, lowered.classes, job_.cluster,
                               job_.recipe.memory, costs_.collective_channels);
  IdVector<engine::ActorId, engine::Actor>& actors = lowered.machine.actors;
  if (unfold_) {
    for (std::size_t rank = 0; rank < lowered.class_of_rank.size(); ++rank)
      actors[static_cast<engine::ActorId>(rank)].memory_capacity =
          step.devices[lowered.class_of_rank[rank]].budget();
    return;
  }
  for (std::size_t c = 0; c < step.devices.size(); ++c)
    actors[lowered.classes[c].actor].memory_capacity = step.devices[c].budget();
}

void StepMaker::place(Step& step) const {
  step.placement = placement_of(job_, step.plan.cast);
  step.lowered = lowered(step.plan.cast, step.placement, job_.stragglers);
  limit_memory(step);
}

std::vector<lower::RankClass> StepMaker::place_with_others(const plan::Cast& cast,
                                                           const lower::DevicePlacement& placement,
                                                           std::vector<recipe::Straggler> slower,
                                                           Step& step) const {
  const plan::Cast& own = step.plan.cast;
  lower::Lowered& lowered = step.lowered;
  slower.insert(slower.begin(), job_.stragglers.begin(), job_.stragglers.end());
  lowered = this->lowered(cast, placement, std::move(slower));
  step.placement.assign(placement.begin(),
                        placement.begin() + static_cast<std::ptrdiff_t>(own.players()));
  const auto first_of_others =
      std::find_if(lowered.classes.begin(), lowered.classes.end(), [&](const auto& rank_class) {
        return static_cast<std::size_t>(rank_class.representative) >= own.players();
      });
  std::vector<lower::RankClass> others(first_of_others, lowered.classes.end());
  lowered.classes.erase(first_of_others, lowered.classes.end());
  lowered.class_of_rank.resize(own.players());
  for (std::vector<cost::Estimate>& kernels : lowered.kernels)
    if (kernels.size() > own.kernels.size()) kernels.resize(own.kernels.size());
  // Actors stand in the order of their first players.
  const std::size_t actors = unfold_ ? own.players() : lowered.classes.size();
  forget_transfers_from(actors, lowered);
  for (std::size_t at = actors; at < lowered.machine.actors.size(); ++at)
    lowered.machine.actors[static_cast<engine::ActorId>(at)].memory_capacity =
        Bytes(std::numeric_limits<std::int64_t>::max());
  limit_memory(step);
  return others;
}

}  // namespace trainyard::simulate
