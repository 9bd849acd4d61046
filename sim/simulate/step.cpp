#include "sim/simulate/step.h"

#include <algorithm>
#include <cmath>

#include "models/layer/peak.h"
#include "sim/simulate/jobs_together.h"
#include "sim/simulate/memory/late_blocks.h"
#include "sim/simulate/step_maker.h"
#include "sim/simulate/watch/step_watcher.h"

namespace trainyard::simulate {

using engine::Record;

const engine::Trace& Step::trace() const {
  if (const auto* memory = std::get_if<engine::OutOfMemory>(&outcome)) return memory->trace;
  if (const auto* deadlock = std::get_if<engine::Deadlock>(&outcome)) return deadlock->trace;
  return std::get<engine::Trace>(outcome);
}

const cost::Profile* Job::profile_of(int gpu_kind) const {
  const auto kind = static_cast<std::size_t>(gpu_kind);
  return prices[kind].profile.get();
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

// Of a training whose length or price is known, and of GPUs that may grow too hot.
bool needs_energy(const Job& job) {
  bool is_asked = job.length.samples > 0 || job.length.own;
  for (const topologies::GpuKind& kind : gpu_kinds_in_use(job.cluster)) {
    if (kind.gpu->busy_power <= Watts(0)) return false;
    is_asked = is_asked || (kind.gpu->cooling && kind.gpu->cooling->throttle);
  }
  return is_asked;
}

// Which actors are told of: those that stand for a class, or for `only` one, and with a monitor
// those that send to them, as what arrives is seen where it is sent.
std::vector<bool> recorded(const lower::Lowered& lowered, std::optional<std::size_t> only,
                           bool monitor) {
  std::vector<bool> shown(lowered.machine.actors.size(), false);
  for (std::size_t c = 0; c < lowered.classes.size(); ++c)
    if (only.value_or(c) == c) shown[index(lowered.classes[c].actor)] = true;
  if (!monitor) return shown;
  std::vector<bool> told = shown;
  for (const engine::Channel& channel : lowered.machine.channels)
    if (shown[index(channel.destination)]) told[index(channel.source)] = true;
  return told;
}

// Those that the timeline shows.
std::vector<bool> kept(const Step& step, const TimelineLimits& limits) {
  std::vector<bool> actors(step.lowered.machine.actors.size(), false);
  for (const std::size_t c : shown_classes(step.lowered, step.plan.cast, limits).shown)
    actors[index(step.lowered.classes[c].actor)] = true;
  return actors;
}

// Tells several. Each keeps to the actors that it knows.
class All final : public engine::Observer {
 public:
  void add(engine::Observer& observer) { observers_.push_back(&observer); }
  // Null: nobody is to be told.
  engine::Observer* observer() {
    if (observers_.size() == 1) return observers_.front();
    return observers_.empty() ? nullptr : this;
  }

  void kernel_ended(const engine::KernelSpan& kernel) override {
    for (engine::Observer* observer : observers_)
      observer->kernel_ended(kernel);
  }
  void op_ended(const engine::Span& op) override {
    for (engine::Observer* observer : observers_)
      observer->op_ended(op);
  }
  bool walk(engine::StateWalk& walk) override {
    return std::all_of(observers_.begin(), observers_.end(),
                       [&](engine::Observer* o) { return o->walk(walk); });
  }
  bool may_be_told_late() const override {
    return std::all_of(observers_.begin(), observers_.end(),
                       [](const engine::Observer* o) { return o->may_be_told_late(); });
  }

 private:
  std::vector<engine::Observer*> observers_;
};

bool is_on_gpu(const Step& step, std::size_t rank_class) {
  const int role = step.lowered.classes[rank_class].role;
  return step.plan.cast.roles[static_cast<std::size_t>(role)].on_gpu();
}

std::size_t first_on_gpus(const Step& step) {
  std::size_t first = 0;
  while (first + 1 < step.lowered.classes.size() && !is_on_gpu(step, first))
    ++first;
  return first;
}

void add_late_blocks(const Job& job, const LateBlocks& blocks, Step& step, std::size_t rank_class) {
  const Bytes late = blocks.of(rank_class, job.recipe.memory.launches_ahead.value());
  const double lost = job.recipe.memory.late_share * static_cast<double>(late.count());
  step.devices[rank_class].late = late;
  step.devices[rank_class].lost = Bytes(std::llround(lost));
}

// `only`: the class that is broken down; nothing: all are.
void run_once(const Job& job, const StepOptions& options, const Beside& beside,
              std::optional<std::size_t> only, Step& step) {
  engine::RunOptions run_options;
  run_options.record = options.monitor                      ? Record::kernels
                       : options.detail == Detail::timeline ? Record::ops
                                                            : Record::nothing;
  run_options.only_kernels_host_may_hold = true;
  run_options.skip_periods = options.skip_periods;
  run_options.solos = options.solos;
  run_options.recorded = recorded(step.lowered, only, options.monitor);
  if (run_options.record == Record::ops) run_options.kept = kept(step, options.shown);
  const bool breakdowns = options.detail != Detail::outline;
  const bool loads = options.monitor || (options.detail >= Detail::summary && needs_energy(job));
  StepWatcher watcher(
      step.plan, step.lowered,
      {.breakdowns = breakdowns, .loads = loads, .waiting = options.monitor, .only = only});
  All all;
  if (breakdowns || step.plan.rounds.count > 1) all.add(watcher);
  if (beside.observer != nullptr) {
    all.add(*beside.observer);
    for (const engine::ActorId actor : beside.actors)
      run_options.recorded[index(actor)] = true;
  }
  std::optional<LateBlocks> late;
  if (job.recipe.memory.launches_ahead.value() > 0) {
    all.add(
        late.emplace(step.plan.cast, step.lowered, job.plan.tensor_parallel.keep_gathered_inputs));
    for (const lower::RankClass& own : step.lowered.classes)
      run_options.recorded[index(own.actor)] = true;
  }
  run_options.observer = all.observer();
  step.outcome = run(step.lowered.machine, run_options);
  if (std::holds_alternative<engine::Deadlock>(step.outcome)) return;
  for (std::size_t c = 0; c < step.devices.size(); ++c) {
    const engine::MemoryPeak& peak = step.trace().peaks[step.lowered.classes[c].actor];
    step.devices[c].pools = peak.pooled - peak.peak;
    if (late) add_late_blocks(job, *late, step, c);
  }
  step.window = watcher.finish(step.trace().end);
  step.server_updates = watcher.server_updates();
  if (breakdowns) step.breakdowns = watcher.breakdowns();
  if (loads) step.loads = watcher.loads();
  if (options.monitor) step.waiting = watcher.take_waiting();
}

}  // namespace

std::size_t slowest_class(const Step& step) {
  const auto finished = [&](std::size_t c) {
    return step.trace().finished[step.lowered.classes[c].actor];
  };
  std::size_t slowest = first_on_gpus(step);
  for (std::size_t c = slowest + 1; c < step.lowered.classes.size(); ++c)
    if (is_on_gpu(step, c) && finished(c) > finished(slowest)) slowest = c;
  return slowest;
}

void run_programs(const Job& job, const StepOptions& options, const Beside& beside, Step& step) {
  const bool is_of_one = options.detail == Detail::standing && step.plan.rounds.count == 1 &&
                         beside.observer == nullptr;
  if (!is_of_one) return run_once(job, options, beside, std::nullopt, step);
  // A pipeline's first stage is the last to end, as a rule.
  const std::size_t likely = first_on_gpus(step);
  run_once(job, options, beside, likely, step);
  if (!std::holds_alternative<engine::Trace>(step.outcome)) return;
  const std::size_t slowest = slowest_class(step);
  if (slowest != likely) run_once(job, options, beside, slowest, step);
}

SlowestGpu slowest_gpu(const Job& job) {
  const recipe::ParallelDegrees& degrees = job.plan.degrees;
  const bool own_pace =
      job.plan.data_parallel.parameter_servers.updates != recipe::ServerUpdates::synchronous;
  const int gpus = degrees.world_size() / (own_pace ? degrees.data : 1);
  return {gpus, 1 + job.compute_jitter * expected_largest(gpus)};
}

int servers_used(const Job& job) {
  const topologies::ClusterSpec& cluster = job.cluster;
  if (cluster.kinds() == 1 && cluster.gpus_used.empty())
    return (job.plan.degrees.world_size() + cluster.server.gpus - 1) / cluster.server.gpus;
  int servers = 0;
  for (int server = 0; server < cluster.servers; ++server)
    servers += cluster.used_on(server) > 0 ? 1 : 0;
  return servers;
}

std::unique_ptr<Step> simulate_step(const Job& job, const StepOptions& options) {
  if (!job.others.empty()) return simulate_together(job, options);
  auto step = std::make_unique<Step>();
  const StepMaker maker(job, options);
  maker.plan(*step);
  maker.place(*step);
  if (options.run) run_programs(job, options, {}, *step);
  return step;
}

}  // namespace trainyard::simulate
