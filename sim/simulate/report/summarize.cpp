#include "sim/simulate/report/summarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "models/layer/peak.h"
#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "sim/base/text.h"
#include "sim/engine/peak_owners.h"
#include "sim/simulate/outlook/training_total.h"
#include "sim/simulate/report/actor_spans.h"

namespace trainyard::simulate {

using engine::Trace;
using lower::RankClass;
using plan::kMemoryKinds;
using plan::MemoryKind;

namespace {

const plan::Role& role_of(const Step& step, const RankClass& rank_class) {
  return step.plan.cast.roles[static_cast<std::size_t>(rank_class.role)];
}

void describe_job(const Job& job, const Step& step, StepReport& report) {
  const recipe::ParallelDegrees& degrees = job.plan.degrees;
  report.world_size = degrees.world_size();
  report.tensor = degrees.tensor;
  report.context = degrees.context;
  report.expert = job.plan.experts.ranks;
  report.data = degrees.data;
  report.pipeline = degrees.pipeline;
  report.schedule = job.plan.pipeline.schedule;
  report.stages = step.plan.shape.stages;
  report.chunks = step.plan.shape.chunks;
  report.overlap_passes = step.plan.shape.paired;
  report.microbatches = step.plan.shape.microbatches;
  report.gpu = gpus_in_words(job.cluster);
  report.device = device_in_a_word(job.cluster);
  report.server = servers_in_words(job.cluster);
  report.servers = step.jobs.empty() ? job.cluster.servers : servers_used(job);
  const std::int64_t length = job.recipe.micro_batch.sequence_length;
  report.parameters = parameter_count(job.network, length);
  report.trained = trained_parameters(job.network, job.recipe.finetune, length);
  report.parameters += adapter_parameters(job.network, job.recipe.finetune, length);
  report.global_batch = job.recipe.global_batch;
  report.sequence_length = job.recipe.micro_batch.sequence_length;
  report.document_length = job.recipe.micro_batch.document_length;
  report.is_language = reads_tokens(job.network);
  report.model_flops = step.plan.model_flops.count();
  report.full_square_flops = step.plan.full_square_flops.count();
  PricedBy priced = priced_by(job.cluster, job.prices);
  report.profile = std::move(priced.profile);
  report.uncalibrated = std::move(priced.uncalibrated);
  report.slowest_gpu = slowest_gpu(job);
  report.fidelity = job.fidelity == recipe::Fidelity::flow ? "flow" : "closed_form";
  for (const RankClass& rank_class : step.lowered.classes)
    report.classes += role_of(step, rank_class).on_gpu();
}

// FLOP/s of all GPUs at their peaks. A GPU that the job says is faster than the others has that
// much more; one that is slower does not reach its own.
double peak_of_all(const Job& job, const Step& step) {
  const lower::Lowered& lowered = step.lowered;
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  std::vector<double> count(kinds.size()), more(kinds.size());
  for (const RankClass& rank_class : lowered.classes)
    if (role_of(step, rank_class).on_gpu())
      count[static_cast<std::size_t>(rank_class.gpu_kind)] += rank_class.ranks;
  for (const recipe::Straggler& rank : job.stragglers) {
    const std::uint32_t own = lowered.class_of_rank[static_cast<std::size_t>(rank.rank)];
    more[static_cast<std::size_t>(lowered.classes[own].gpu_kind)] +=
        std::max(0.0, 1 / rank.compute_slowdown - 1);
  }
  double sum = 0;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    sum += models::peak_of(*kinds[kind].gpu, job.recipe.precision.compute).count() *
           (count[kind] + more[kind]);
  return sum;
}

void rate_throughput(const Job& job, const Step& step, StepReport& report) {
  const double seconds = Seconds(*report.step_time).count();
  const double gpus = report.world_size;
  const double peak = peak_of_all(job, step);
  report.samples_per_s = report.counted * static_cast<double>(job.recipe.global_batch) / seconds;
  if (report.is_language) {
    report.tokens_per_s =
        report.samples_per_s * static_cast<double>(job.recipe.micro_batch.sequence_length);
    report.tokens_per_s_per_gpu = report.tokens_per_s / gpus;
  }
  report.model_tflops_per_gpu = report.model_flops / seconds / gpus / 1e12;
  report.full_square_tflops_per_gpu = report.full_square_flops / seconds / gpus / 1e12;
  if (peak > 0) {
    report.mfu = report.model_flops / (seconds * peak);
    report.full_square_mfu = report.full_square_flops / (seconds * peak);
    report.hfu = step.plan.executed_flops.count() / (seconds * peak);
  }
}

void break_down(const Step& step, StepReport& report) {
  const Trace& trace = step.trace();
  const StepWindow& window = step.window;
  const lower::Lowered& lowered = step.lowered;
  double idle = 0;
  for (std::size_t c = 0; c < lowered.classes.size(); ++c) {
    const RankClass& rank_class = lowered.classes[c];
    if (!role_of(step, rank_class).on_gpu()) continue;
    const Breakdown& parts = step.breakdowns[c];
    const DeviceMemory& device = step.devices[c];
    const Bytes held = trace.peaks[rank_class.actor].peak;
    report.ranks.push_back({rank_class.representative, rank_class.ranks, rank_class.stage, parts,
                            device.on_device(held), device.allocated(held), device.reserved(held)});
    const Duration busy = parts[static_cast<std::size_t>(TimeCategory::compute)] +
                          parts[static_cast<std::size_t>(TimeCategory::optimizer)];
    idle += rank_class.ranks * Seconds(window.step() - busy).count();
  }
  if (window.length() > Duration(0))
    report.bubble_fraction = idle / (report.world_size * Seconds(window.step()).count());
}

void share_among_gpus(const Job& job, const Step& step, StepReport& report) {
  if (gpu_kinds(job.cluster).size() == 1 && step.plan.batch_sizes.size() < 2) return;
  const double whole = Seconds(step.window.step()).count();
  for (std::size_t c = 0; c < step.lowered.classes.size(); ++c) {
    const RankClass& rank_class = step.lowered.classes[c];
    const plan::Role& role = role_of(step, rank_class);
    if (!role.on_gpu()) continue;
    const topologies::GpuSpec& gpu = gpu_of(job, rank_class);
    const std::vector<std::int64_t>& sizes = step.plan.batch_sizes;
    const std::int64_t batch = sizes.empty() ? job.recipe.micro_batch.size.value()
                                             : sizes[static_cast<std::size_t>(role.batch)];
    const auto known = std::find_if(report.gpu_shares.begin(), report.gpu_shares.end(),
                                    [&](const GpuShare& share) { return share.name == gpu.name; });
    GpuShare& share = known != report.gpu_shares.end()
                          ? *known
                          : report.gpu_shares.emplace_back(GpuShare{
                                .name = gpu.name, .least_batch = batch, .most_batch = batch});
    share.least_batch = std::min(share.least_batch, batch);
    share.most_batch = std::max(share.most_batch, batch);
    const Breakdown& parts = step.breakdowns[c];
    const Duration busy = parts[static_cast<std::size_t>(TimeCategory::compute)] +
                          parts[static_cast<std::size_t>(TimeCategory::optimizer)];
    const double ranks = share.ranks + rank_class.ranks;
    share.busy =
        (share.busy * share.ranks + Seconds(busy).count() / whole * rank_class.ranks) / ranks;
    share.ranks += rank_class.ranks;
    const Bytes held = step.devices[c].on_device(step.trace().peaks[rank_class.actor].peak);
    if (share.capacity > Bytes(0) && held - gpu.memory <= share.memory - share.capacity) continue;
    share.memory = held;
    share.capacity = gpu.memory;
  }
}

void count_messages(const Step& step, StepReport& report) {
  std::int64_t bytes = 0;
  for (const RankClass& rank_class : step.lowered.classes) {
    const engine::Program& program = role_of(step, rank_class).program;
    std::vector<std::int64_t> sent;  // by block
    for (const engine::Block& block : program.blocks) {
      sent.push_back(0);
      for (const engine::Op& op : block.ops)
        if (op.kind == engine::OpKind::send &&
            op.group == static_cast<std::uint8_t>(plan::OpGroup::pipeline))
          sent.back() += step.plan.cast.transfer(op).bytes.count();
    }
    for (const engine::Call& call : program.calls)
      bytes += rank_class.ranks * sent[call.block];
  }
  report.pipeline_bytes = Bytes(bytes / step.plan.rounds.count);
}

// A layer's activations come and go whole, so those of one owner are a number of micro-batches.
// What no layer owns stands under its own name.
std::vector<MemoryReport::ModuleBytes> activations_by_module(
    const plan::StepPlan& plan, const plan::Role& role,
    const std::vector<MemoryReport::Owner>& owners) {
  std::map<std::string_view, const models::Activations*> kept_by;
  for (const auto* places : {&plan.kept, &plan.kept_whole})
    for (const plan::KeptByPlace& place : *places)
      kept_by.emplace(place.owner, &place.kept[static_cast<std::size_t>(role.batch)]);
  std::map<std::string, std::int64_t> sums;
  for (const MemoryReport::Owner& owner : owners) {
    if (owner.category != MemoryKind::activations) continue;
    const auto place = kept_by.find(owner.name);
    if (place == kept_by.end()) {
      sums[owner.name] += owner.bytes.count();
      continue;
    }
    const std::int64_t copies = owner.bytes.count() / place->second->total().count();
    for (const models::Kept& kept : place->second->by_module())
      sums[std::string(name(kept.module))] += copies * kept.bytes.count();
  }
  std::vector<MemoryReport::ModuleBytes> modules;
  for (const auto& [module, bytes] : sums)
    modules.push_back({module, Bytes(bytes)});
  std::stable_sort(modules.begin(), modules.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return modules;
}

// Whether a device holds a larger share of its memory than the one told of, or wants it, of those
// that are full.
bool is_fuller(Bytes peak, Bytes wanted, Bytes capacity, const MemoryReport& told) {
  const auto shares = [](Bytes own, Bytes other_capacity) {
    return Int128{own.count()} * other_capacity.count();
  };
  return std::pair(shares(peak, told.capacity), shares(wanted, told.capacity)) >
         std::pair(shares(told.peak, capacity), shares(told.wanted, capacity));
}

void account_memory(const Step& step, StepReport& report) {
  const Trace& trace = step.trace();
  MemoryReport& memory = report.memory;
  const RankClass* worst = nullptr;
  const DeviceMemory* device = nullptr;
  for (std::size_t c = 0; c < step.lowered.classes.size(); ++c) {
    const RankClass& rank_class = step.lowered.classes[c];
    if (worst != nullptr && !role_of(step, rank_class).on_gpu()) continue;
    const Bytes held = trace.peaks[rank_class.actor].peak;
    const Bytes on_device = step.devices[c].on_device(held);
    const Bytes wanted = step.devices[c].wanted(held);
    if (worst != nullptr && !is_fuller(on_device, wanted, step.devices[c].capacity, memory))
      continue;
    worst = &rank_class;
    device = &step.devices[c];
    memory.peak = on_device;
    memory.wanted = wanted;
    memory.capacity = device->capacity;
  }
  const engine::MemoryPeak& peak = trace.peaks[worst->actor];
  memory.allocated = device->allocated(peak.peak);
  memory.reserved = device->reserved(peak.peak);
  memory.late = device->waited_for(peak.peak);
  memory.peak_rank = worst->representative;
  memory.peak_at = peak.at;
  const auto by_category = device->by_category(peak.by_category);
  for (std::size_t k = 0; k < kMemoryKinds; ++k)
    memory.by_category[k] = Bytes(by_category[k]);
  memory.fits = memory.peak <= memory.capacity;
  memory.is_tight = device->is_tight(peak.peak);

  if (peak.ended.empty()) return;
  const engine::Program& program = role_of(step, *worst).program;
  for (const engine::MemoryChange& owner : owners_of_peak(program, worst->actor, peak)) {
    if (owner.bytes < 0) continue;
    memory.owners.push_back(
        {static_cast<MemoryKind>(owner.category), program.labels[owner.owner], Bytes(owner.bytes)});
  }
  for (const DeviceMemory::Part& part : device->parts(peak.peak))
    if (part.bytes > Bytes(0))
      memory.owners.push_back({part.category, std::string(part.owner), part.bytes});
  std::stable_sort(memory.owners.begin(), memory.owners.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  memory.activations = activations_by_module(step.plan, role_of(step, *worst), memory.owners);
  if (memory.owners.size() > 12) memory.owners.resize(12);
}

// What servers hold of a kind of memory, and have of it; 0: not stated, not a limit.
struct Filled {
  Bytes used, capacity;
  bool fits() const { return capacity == Bytes(0) || used <= capacity; }
};

// The server that is nearest to its limit, or furthest beyond; of those without one the fullest.
Filled tightest(const topologies::ClusterSpec& cluster, const std::vector<Bytes>& used,
                Bytes topologies::ServerSpec::*capacity) {
  Filled worst;
  for (std::size_t server = 0; server < used.size(); ++server) {
    const Filled own{used[server], cluster.server_at(static_cast<int>(server)).*capacity};
    const bool limited = own.capacity > Bytes(0), was_limited = worst.capacity > Bytes(0);
    const bool tighter =
        limited == was_limited ? own.used - own.capacity > worst.used - worst.capacity : limited;
    if (server == 0 || tighter) worst = own;
  }
  return worst;
}

// All players of a server are counted, whatever their roles are.
void account_host_memory(const Job& job, const Step& step, StepReport& report) {
  const std::vector<plan::Role>& roles = step.plan.cast.roles;
  const bool all_on_gpus =
      std::all_of(roles.begin(), roles.end(), std::mem_fn(&plan::Role::on_gpu));
  if (!job.recipe.offload.any() && all_on_gpus) return;
  HostMemoryReport& host = report.host_memory.emplace();
  const auto servers = static_cast<std::size_t>(job.cluster.servers);
  std::vector<Bytes> memory(servers), nvme(servers);
  for (std::size_t rank = 0; rank < step.lowered.class_of_rank.size(); ++rank) {
    const RankClass& own = step.lowered.classes[step.lowered.class_of_rank[rank]];
    const recipe::HostMemory& held = role_of(step, own).host;
    const auto at = static_cast<std::size_t>(step.placement[rank].server);
    memory[at] = memory[at] + held.memory();
    nvme[at] = nvme[at] + held.nvme;
    if (rank > 0 && held.memory() <= host.memory) continue;
    host.rank = static_cast<int>(rank);
    host.role = role_of(step, own).on_gpu() ? "" : role_of(step, own).name;
    host.memory = held.memory();
    host.nvme = held.nvme;
    host.parameters = held.parameters;
    host.gradients = held.gradients;
    host.optimizer_state = held.optimizer_state;
    host.activations = held.activations;
    host.buffers = held.buffers;
  }
  const Filled of_memory = tightest(job.cluster, memory, &topologies::ServerSpec::host_memory);
  const Filled of_nvme = tightest(job.cluster, nvme, &topologies::ServerSpec::nvme_capacity);
  host.server_memory = of_memory.used;
  host.memory_capacity = of_memory.capacity;
  host.server_nvme = of_nvme.used;
  host.nvme_capacity = of_nvme.capacity;
  host.fits = of_memory.fits() && of_nvme.fits();
}

std::string text_of(const Step& step, const engine::Deadlock& deadlock) {
  std::string text = fmt::format("deadlock at {}: ", to_text(deadlock.at));
  const std::size_t shown = std::min<std::size_t>(deadlock.waiting.size(), 4);
  for (std::size_t i = 0; i < shown; ++i) {
    const engine::Waiting& waiting = deadlock.waiting[i];
    const engine::Actor& actor = step.lowered.machine.actors[waiting.actor];
    const engine::Op& op = actor.program->op(waiting.call, waiting.op);
    text += fmt::format("{}actor {} '{}' {}", i == 0 ? "" : "; ", index(waiting.actor),
                        actor.program->labels[op.label], waiting.why);
  }
  if (deadlock.waiting.size() > shown)
    text += fmt::format("; and {} more", deadlock.waiting.size() - shown);
  return text;
}

// Of a batch from its host to the GPU, while no other moves.
Duration copy_time(const Step& step, Bytes bytes) {
  for (const auto& table : step.lowered.transfers)
    for (const lower::TransferEstimate& estimate : table)
      if (estimate.host == HostTransfer::to_device && estimate.spec.bytes == bytes)
        return to_duration(estimate.terms.latency +
                           estimate.terms.wire_bytes / estimate.terms.bandwidth);
  return {};
}

// Requires: the breakdowns of the report.
void account_input(const Job& job, const Step& step, StepReport& report) {
  if (!job.recipe.input) return;
  const recipe::InputPipeline& input = *job.recipe.input;
  const std::int64_t samples = job.recipe.micro_batch.size;
  InputReport& own = report.input.emplace();
  own.workers = input.workers;
  own.prefetch = input.prefetch;
  own.cores = input.cores;
  own.workers_of_server = input.workers * input.ranks_of_server;
  own.most_workers = recipe::kMostInputWorkers;
  own.prepare = to_duration(input.prepare_time(samples));
  own.prepare_alone = to_duration(input.prepare_time(samples) / input.contention());
  own.cores_at_best =
      input.cores == 0 ? Duration(0) : own.prepare_alone * input.ranks_of_server / input.cores;
  own.read = to_duration(input.read_time(samples));
  const Duration copy = copy_time(step, samples * input.prepared_sample);
  // Of a single place the worker waits until its batch is on the GPU.
  const Duration held = input.prefetch == 1 ? copy : Duration(0);
  own.between = std::max(own.read, (own.read + own.prepare + held) / input.workers);
  Duration waits{};
  for (const StepReport::RankBreakdown& rank : report.ranks)
    if (rank.stage == 0)
      waits = std::max(waits, rank.breakdown[static_cast<std::size_t>(TimeCategory::input)]);
  const auto batches = plan::microbatches(job.recipe, job.plan);
  own.taken = (report.simulated_step - waits) / batches + (input.copy_ahead ? Duration(0) : copy);
}

}  // namespace

StepReport outline(const Job& job, const Step& step) {
  StepReport report;
  const Trace& trace = step.trace();
  report.events = trace.events;
  report.ops = trace.ops;
  if (const auto* deadlock = std::get_if<engine::Deadlock>(&step.outcome)) {
    report.fits = false;
    report.deadlock = text_of(step, *deadlock);
    return report;
  }
  report.simulated_step = step.window.step();
  report.counted = step.plan.counted;
  report.server_updates = step.server_updates;
  report.jobs = step.jobs;
  account_memory(step, report);
  account_host_memory(job, step, report);
  report.fits = report.memory.fits && (!report.host_memory || report.host_memory->fits);
  if (report.fits) report.step_time = report.simulated_step;
  return report;
}

StepReport standing(const Job& job, const Step& step) {
  StepReport report = outline(job, step);
  describe_job(job, step, report);
  if (report.deadlock) return report;
  if (report.step_time && *report.step_time > Duration(0)) rate_throughput(job, step, report);
  const std::size_t slowest = slowest_class(step);
  report.breakdown = step.breakdowns[slowest];
  report.slowest_rank = step.lowered.classes[slowest].representative;
  return report;
}

StepReport summarize(const Job& job, const Step& step) {
  StepReport report = standing(job, step);
  if (report.deadlock) return report;
  break_down(step, report);
  share_among_gpus(job, step, report);
  account_input(job, step, report);
  report.energy = step_energy(job, step, report);
  report.training = training_total(job, report);
  report.cloud_or_own = cloud_or_own(job, report);
  count_messages(step, report);
  account_basis(job, step, report);
  return report;
}

}  // namespace trainyard::simulate
