// What DataParallelWriter writes when the host keeps and updates optimizer states: gradients on
// their way down, the update tile by tile, parameters on their way up, and shards of parameters
// that live on the host. Psi parameters of one rank, 16-bit, Adam:
//
//   down  2 Psi/n with gradients that n ranks divide, in the backward pass as they are reduced
//   host  28 Psi/n bytes read and written: gradients, three fp32 states twice, 16-bit parameters
//   up    2 Psi/n after each tile's update; with parameters offloaded 2 Psi/n before each gather
//   NVMe  12 Psi/n read before and written after, three tiles in flight
//
// Source: Ren et al., ZeRO-Offload, ATC 2021, sections 3 and 5; Rajbhandari et al., ZeRO-Infinity,
// SC 2021, sections 5 and 6; PyTorch, torch.distributed.fsdp CPUOffloadPolicy.
#include <algorithm>

#include "sim/plan/replicas/data_parallel_owners.h"
#include "sim/plan/replicas/data_parallel_writer.h"
#include "sim/plan/step_memory.h"

namespace trainyard::plan {

using recipe::OffloadOptions;
using recipe::OffloadTo;

namespace {

constexpr const char* kFetched = "fetched shards of parameters";
constexpr StreamSet kOffloadStreams =
    stream_bit(StreamKind::host_optimizer) | stream_bit(StreamKind::to_host) |
    stream_bit(StreamKind::to_device) | stream_bit(StreamKind::nvme_read) |
    stream_bit(StreamKind::nvme_write);
constexpr std::int64_t kTilesInFlight = 3;  // one is read, one updated, one written

// Of `whole`, part `at` of `parts`.
Bytes part_of(Bytes whole, std::int64_t at, std::int64_t parts) {
  const auto until = [&](std::int64_t end) {
    return whole.count() / parts * end + whole.count() % parts * end / parts;
  };
  return Bytes(until(at + 1) - until(at));
}

// The strategy as far as gradients are what the optimizer of this rank reads.
DataParallelStrategy as_updated(DataParallelStrategy strategy) {
  strategy.gradient_shards = strategy.optimizer_shards;
  return strategy;
}

}  // namespace

bool DataParallelWriter::offloads() const {
  return recipe_.offload.optimizer != OffloadTo::none;
}

// Whole gradients stay where they are accumulated; shards go as soon as they are reduced.
bool DataParallelWriter::gradients_leave() const {
  return offloads() && (strategy_.gradient_shards > 1 || strategy_.layer_units);
}

bool DataParallelWriter::accumulates_on_host() const {
  return gradients_leave() && strategy_.each_microbatch && step_.shape.microbatches > 1;
}

Bytes DataParallelWriter::updated_gradients(const StageParameters& parameters) const {
  return state_bytes(parameters.dense, recipe_, as_updated(strategy_)).gradients +
         state_bytes(parameters.experts, recipe_, as_updated(expert_strategy_)).gradients;
}

std::int64_t DataParallelWriter::updated_parameters(const StageParameters& parameters) const {
  return shard_of(parameters.dense, strategy_.optimizer_shards) +
         shard_of(parameters.experts, expert_strategy_.optimizer_shards);
}

std::int64_t DataParallelWriter::tiles(const StageParameters& parameters) const {
  const std::int64_t tile = recipe_.offload.tile_parameters;
  return std::max<std::int64_t>(1, (updated_parameters(parameters) + tile - 1) / tile);
}

// Takes from the resident states what the host or NVMe holds.
void DataParallelWriter::move_states(const StageParameters& parameters, StateBytes& states) {
  const OffloadOptions& offload = recipe_.offload;
  if (offload.parameters != OffloadTo::none) {
    (offload.parameters == OffloadTo::cpu ? host_.parameters : host_.nvme) = states.parameters;
    states.parameters = Bytes(0);
  }
  if (!offloads()) return;
  const bool to_cpu = offload.optimizer == OffloadTo::cpu;
  Bytes& kept = to_cpu ? host_.optimizer_state : host_.nvme;
  kept = kept + states.optimizer_state;
  host_.gradients = updated_gradients(parameters);
  if (!keeps_master_copy(recipe_) && offload.parameters == OffloadTo::none) {
    // What the host updates, where the states have no copy of the parameters.
    const Bytes own = updated_parameters(parameters) * size_of(weight_type(recipe_));
    Bytes& copy = to_cpu ? host_.parameters : host_.nvme;
    copy = copy + own;
  }
  const std::int64_t count = tiles(parameters);
  const Bytes streamed = nvme_read(states.optimizer_state, parameters);
  host_.buffers = host_.buffers + std::min(count, kTilesInFlight) * part_of(streamed, 0, count);
  states.optimizer_state = Bytes(0);
  if (gradients_leave()) states.gradients = Bytes(0);
}

// Bytes that an update reads from NVMe: states, and parameters of which they hold no copy.
Bytes DataParallelWriter::nvme_read(Bytes states, const StageParameters& parameters) const {
  const OffloadOptions& offload = recipe_.offload;
  const bool alone = offload.parameters == OffloadTo::none;
  const bool reads_weights = !keeps_master_copy(recipe_) &&
                             (alone ? offload.optimizer : offload.parameters) == OffloadTo::nvme;
  const Bytes weights = updated_parameters(parameters) * size_of(weight_type(recipe_));
  return (offload.optimizer == OffloadTo::nvme ? states : Bytes(0)) +
         (reads_weights ? weights : Bytes(0));
}

// A reduced bucket or shard goes to the host and, behind the first micro-batch, is added to what is
// there: each byte is read twice and written once. `kind` and `owner`: as what the GPU has had it.
void DataParallelWriter::copy_gradients(Bytes own, StreamSet waits, const std::string& name,
                                        MemoryKind kind, const char* owner) {
  if (own == Bytes(0)) return;
  builder_.host_transfer(HostTransfer::to_host, own, waits, "copy " + name + " to the host");
  if (gradients_leave()) builder_.last_gives_back(kind, own, owner);
  if (!accumulates_on_host() || role_.first) return;
  builder_.host_transfer(HostTransfer::host_memory, 3 * own, stream_bit(StreamKind::to_host),
                         "add " + name + " on the host");
}

void DataParallelWriter::take_leaving_gradients(Bytes own) {
  if (gradients_leave()) builder_.last_takes(MemoryKind::communication_buffers, own, kLeaving);
}

// Squares are summed where the gradients are.
void DataParallelWriter::clip_on_host(Bytes gradients) {
  builder_.host_transfer(HostTransfer::host_memory, gradients, stream_bit(StreamKind::to_host),
                         "gradient norm on the host");
  StreamSet waits = stream_bit(StreamKind::to_host);
  if (norm_ranks() > 1) {
    builder_.collective(StreamKind::data, builder_.connections().gradient_norm(norm_over_all_),
                        {CollectiveKind::all_reduce, size_of(models::Dtype::fp32)},
                        stream_bit(StreamKind::compute) | stream_bit(StreamKind::host_optimizer),
                        "all-reduce gradient norm");
    waits |= stream_bit(StreamKind::data);
  }
  builder_.host_transfer(HostTransfer::host_memory, 2 * gradients, waits,
                         "clip gradients on the host");
}

// Tile by tile; each order of enqueuing says what may overlap. A tile is read while the one before
// it is updated and the one before that is written: a mark lets the write of a tile wait for its
// own update only.
void DataParallelWriter::update_on_host(const StageParameters& parameters) {
  const OffloadOptions& offload = recipe_.offload;
  const models::MemoryBound dense = optimizer_kernel(parameters.dense, recipe_, strategy_);
  const models::MemoryBound experts =
      optimizer_kernel(parameters.experts, recipe_, expert_strategy_);
  const Bytes touched = dense.read + dense.written + experts.read + experts.written;
  const Bytes states = state_bytes(parameters.dense, recipe_, strategy_).optimizer_state +
                       state_bytes(parameters.experts, recipe_, expert_strategy_).optimizer_state;
  const Bytes weights = updated_parameters(parameters) * size_of(weight_type(recipe_));
  const Bytes read = nvme_read(states, parameters);
  const bool weights_to_nvme = offload.parameters == OffloadTo::nvme && keeps_master_copy(recipe_);
  const Bytes written = read + (weights_to_nvme ? weights : Bytes(0));
  const Bytes up = offload.parameters == OffloadTo::none ? weights : Bytes(0);
  const StreamSet compute = stream_bit(StreamKind::compute);
  const StreamSet host = stream_bit(StreamKind::host_optimizer);

  const std::int64_t count = tiles(parameters);
  const auto move = [&](HostTransfer transfer, Bytes whole, std::int64_t at, StreamSet waits,
                        const char* what) {
    const Bytes bytes = part_of(whole, at, count);
    if (bytes > Bytes(0))
      builder_.host_transfer(transfer, bytes, waits, what + (" tile " + std::to_string(at)));
  };
  const auto read_tile = [&](std::int64_t at, StreamSet waits) {
    move(HostTransfer::nvme_read, read, at, waits, "read states of");
  };
  const auto write_tile = [&](std::int64_t at) {
    move(HostTransfer::nvme_write, written, at, host, "write states of");
  };
  read_tile(0, compute);
  for (std::int64_t at = 0; at < count; ++at) {
    if (read > Bytes(0)) {
      builder_.mark(StreamKind::host_optimizer, stream_bit(StreamKind::nvme_read),
                    "wait for states");
      if (at + 1 < count) read_tile(at + 1, compute | stream_bit(StreamKind::nvme_write));
    }
    if (at > 0) write_tile(at - 1);
    move(HostTransfer::host_memory, touched, at, compute | stream_bit(StreamKind::to_host),
         "update");
    move(HostTransfer::to_device, up, at, host, "copy parameters of");
  }
  write_tile(count - 1);
  builder_.compute_waits_for(kOffloadStreams);
  builder_.settle_waits("wait for the host's update");
}

// The shard of a unit is copied up right before its gather; from NVMe it is read while the unit
// before it is fetched.
StreamSet DataParallelWriter::fetch_shard(const Unit& unit) {
  if (recipe_.offload.parameters == OffloadTo::none) return 0;
  const StreamSet limit = strategy_.limited ? stream_bit(StreamKind::compute) : 0;
  const auto shard = [&](const Unit& of) {
    return state_bytes(of.parameters, recipe_, strategy_).parameters;
  };
  const auto at = static_cast<std::size_t>(&unit - units_.data());
  StreamSet waits = limit;
  const bool from_nvme = recipe_.offload.parameters == OffloadTo::nvme;
  const auto read = [&](std::size_t number) {
    while (number < units_.size() && !units_[number].gathers)
      ++number;
    if (number >= units_.size() || number < read_) return;
    builder_.host_transfer(HostTransfer::nvme_read, shard(units_[number]), limit,
                           "read shard of " + units_[number].name);
    read_ = number + 1;
  };
  if (from_nvme) {
    read(at);
    waits |= stream_bit(StreamKind::nvme_read);
    host_.buffers = std::max(host_.buffers, 2 * shard(unit));
  }
  builder_.host_transfer(HostTransfer::to_device, shard(unit), waits,
                         "fetch shard of " + unit.name);
  builder_.last_takes(MemoryKind::communication_buffers, shard(unit), kFetched);
  if (from_nvme) read(at + 1);
  return stream_bit(StreamKind::to_device);
}

void DataParallelWriter::leave_shard(const Unit& unit) {
  if (recipe_.offload.parameters == OffloadTo::none) return;
  builder_.last_gives_back(MemoryKind::communication_buffers,
                           state_bytes(unit.parameters, recipe_, strategy_).parameters, kFetched);
}

}  // namespace trainyard::plan
