#include "sim/simulate/step.h"

#include <algorithm>

#include "models/layer/peak.h"
#include "sim/simulate/pass_times.h"
#include "sim/simulate/stage_gpus.h"
#include "sim/simulate/step_watcher.h"
#include "topologies/topology.h"

namespace trainyard::simulate {

using engine::Record;

const engine::Trace& Step::trace() const {
  if (const auto* memory = std::get_if<engine::OutOfMemory>(&outcome)) return memory->trace;
  if (const auto* deadlock = std::get_if<engine::Deadlock>(&outcome)) return deadlock->trace;
  return std::get<engine::Trace>(outcome);
}

const cost::Profile* Job::profile_of(int gpu_kind) const {
  const auto kind = static_cast<std::size_t>(gpu_kind);
  return prices[kind].profile ? &*prices[kind].profile : nullptr;
}

const topologies::GpuSpec& gpu_of(const Job& job, const lower::RankClass& rank_class) {
  return *gpu_kinds(job.cluster)[static_cast<std::size_t>(rank_class.gpu_kind)].gpu;
}

cost::MachinePeaks peaks(const topologies::GpuSpec& gpu) {
  cost::MachinePeaks peaks;
  peaks.memory_bandwidth = gpu.memory_bandwidth;
  peaks.l2 = gpu.l2;
  if (gpu.power_limit > Watts(0)) peaks.power = gpu.power_limit.count() / gpu.busy_power.count();
  for (const models::Dtype dtype : models::kDtypes)
    models::peak_of(peaks, dtype) = models::peak_of(gpu, dtype);
  return peaks;
}

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

// Of a training whose length or price is known, and of GPUs that may grow too hot.
bool needs_energy(const Job& job) {
  bool is_asked = job.length.samples > 0 || job.length.own;
  for (const topologies::GpuKind& kind : gpu_kinds_in_use(job.cluster)) {
    if (kind.gpu->busy_power <= Watts(0)) return false;
    is_asked = is_asked || (kind.gpu->cooling && kind.gpu->cooling->throttle);
  }
  return is_asked;
}

// What each kind of GPUs takes for kernels and, as far as its laws are asked, for messages.
struct Costs {
  std::vector<std::unique_ptr<cost::ComputeCost>> compute;
  std::vector<lower::GpuLaws> laws;
  std::unique_ptr<cost::MessageCost> messages;
  double communication_share = 1;        // the least of all
  std::vector<int> collective_channels;  // of the profiles
};

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

// What is left of each device for what its program holds.
void limit_memory(lower::Lowered& lowered, const std::vector<DeviceMemory>& devices) {
  IdVector<engine::ActorId, engine::Actor>& actors = lowered.machine.actors;
  if (actors.size() == lowered.class_of_rank.size()) {  // every rank is one
    for (const engine::ActorId actor : actors.ids())
      actors[actor].memory_capacity = devices[lowered.class_of_rank[index(actor)]].budget();
    return;
  }
  for (std::size_t c = 0; c < devices.size(); ++c)
    actors[lowered.classes[c].actor].memory_capacity = devices[c].budget();
}

// Which actors are told of: those that stand for a class, and with a monitor those that send to
// them, as what arrives is seen where it is sent.
std::vector<bool> recorded(const lower::Lowered& lowered, bool monitor) {
  std::vector<bool> shown(lowered.machine.actors.size(), false);
  for (const lower::RankClass& rank_class : lowered.classes)
    shown[index(rank_class.actor)] = true;
  if (!monitor) return shown;
  std::vector<bool> told = shown;
  for (const engine::Channel& channel : lowered.machine.channels)
    if (shown[index(channel.destination)]) told[index(channel.source)] = true;
  return told;
}

void run_programs(const Job& job, const StepOptions& options, Step& step) {
  engine::RunOptions run_options;
  run_options.record = options.monitor                      ? Record::kernels
                       : options.detail == Detail::timeline ? Record::ops
                                                            : Record::nothing;
  run_options.only_kernels_host_may_hold = true;
  run_options.recorded = recorded(step.lowered, options.monitor);
  const bool breakdowns = options.detail != Detail::outline;
  const bool loads = breakdowns && (options.monitor || needs_energy(job));
  StepWatcher watcher(step.plan, step.lowered,
                      {.breakdowns = breakdowns, .loads = loads, .waiting = options.monitor});
  if (breakdowns || step.plan.rounds.count > 1) run_options.observer = &watcher;
  step.outcome = run(step.lowered.machine, run_options);
  if (std::holds_alternative<engine::Deadlock>(step.outcome)) return;
  for (std::size_t c = 0; c < step.devices.size(); ++c) {
    const engine::MemoryPeak& peak = step.trace().peaks[step.lowered.classes[c].actor];
    step.devices[c].pools = peak.pooled - peak.peak;
  }
  step.window = watcher.finish(step.trace().end);
  step.server_updates = watcher.server_updates();
  if (breakdowns) step.breakdowns = watcher.breakdowns();
  if (loads) step.loads = watcher.loads();
  if (options.monitor) step.waiting = watcher.take_waiting();
}

}  // namespace

SlowestServer slowest_server(const Job& job) {
  const topologies::ClusterSpec& cluster = job.cluster;
  const int gpus = cluster.server.gpus;
  int servers = (job.plan.degrees.world_size() + gpus - 1) / gpus;
  if (cluster.kinds() > 1) {
    servers = 0;
    for (int server = 0; server < cluster.servers; ++server)
      servers += cluster.used_on(server) > 0 ? 1 : 0;
  }
  return {servers, 1 + job.compute_jitter * expected_largest(servers)};
}

std::unique_ptr<Step> simulate_step(const Job& job, const StepOptions& options) {
  auto step = std::make_unique<Step>();
  const Costs costs = costs_of(job);
  const std::optional<plan::Batches> batches = split_batch(job, costs.laws);
  step->work = work_of(job, batches ? batches->sizes.front() : job.recipe.micro_batch.size.value());
  std::optional<topologies::Topology> topology;
  if (job.fidelity == recipe::Fidelity::flow) topology.emplace(job.cluster);
  const auto lowered = [&](const plan::StepPlan& plan) {
    step->placement = lower::in_order(plan.cast, job.cluster);
    lower::Lowered result =
        lower::lower(plan.cast, step->placement, job.cluster, topology ? &*topology : nullptr,
                     costs.laws, *costs.messages,
                     {.fidelity = job.fidelity,
                      .fold = !options.unfold,
                      .stragglers = job.stragglers,
                      .slowdown = slowest_server(job).slowdown,
                      .communication_share = costs.communication_share,
                      .algorithms = job.collectives});
    step->devices = device_memory(plan.cast, step->placement, result, job.cluster,
                                  job.recipe.memory, costs.collective_channels);
    limit_memory(result, step->devices);
    return result;
  };
  const std::vector<plan::StageGpus> gpus =
      stage_gpus(job, step->work, costs.laws, *costs.messages);
  PipelineEstimate estimate;
  if (const std::string_view other = times_from(job.plan); !other.empty()) {
    recipe::ParallelPlan trial = job.plan;
    trial.pipeline.schedule = other;
    const plan::StepPlan plan =
        plan::plan_step(step->work, job.recipe, trial, {}, gpus, batches ? &*batches : nullptr);
    estimate = estimate_passes(plan, lowered(plan));
  }
  step->plan =
      plan::plan_step(step->work, job.recipe, job.plan, {estimate.times, estimate.memory_limit},
                      gpus, batches ? &*batches : nullptr);
  step->lowered = lowered(step->plan);
  if (options.run) run_programs(job, options, *step);
  return step;
}

}  // namespace trainyard::simulate
