#include "sim/plan/replicas/parts/host_optimizer.h"

#include <algorithm>

#include "sim/plan/replicas/parts/owners.h"

namespace trainyard::plan {

using recipe::OffloadOptions;
using recipe::OffloadTo;

namespace {

constexpr StreamSet kOffloadStreams =
    stream_bit(StreamKind::host_optimizer) | stream_bit(StreamKind::to_host) |
    stream_bit(StreamKind::to_device) | stream_bit(StreamKind::nvme_read) |
    stream_bit(StreamKind::nvme_write);
constexpr std::int64_t kTilesInFlight = 3;  // one is read, one updated, one written

// Part `at` of `parts` of `whole`.
Bytes part_of(Bytes whole, std::int64_t at, std::int64_t parts) {
  const auto until = [&](std::int64_t end) {
    return whole.count() / parts * end + whole.count() % parts * end / parts;
  };
  return Bytes(until(at + 1) - until(at));
}

}  // namespace

Bytes updated_gradients(const ReplicaContext& context, const StageParameters& parameters) {
  Bytes sum;
  for (const ReplicaGroup& group : context.groups) {
    DataParallelStrategy as_updated = group.strategy;
    as_updated.gradient_shards = as_updated.optimizer_shards;
    sum = sum + state_bytes(group.parameters(parameters), context.recipe, as_updated).gradients;
  }
  return sum;
}

bool HostOptimizer::used() const {
  return context_.recipe.offload.optimizer != OffloadTo::none;
}

bool HostOptimizer::gradients_leave() const {
  const DataParallelStrategy& strategy = context_.strategy();
  return used() && (strategy.gradient_shards > 1 || strategy.layer_units);
}

bool HostOptimizer::accumulates() const {
  return gradients_leave() && context_.strategy().each_microbatch && context_.accumulates();
}

std::int64_t HostOptimizer::updated_parameters(const StageParameters& parameters) const {
  std::int64_t sum = 0;
  for (const ReplicaGroup& group : context_.groups)
    sum += shard_of(group.parameters(parameters), group.strategy.optimizer_shards);
  return sum;
}

std::int64_t HostOptimizer::tiles(const StageParameters& parameters) const {
  const std::int64_t tile = context_.recipe.offload.tile_parameters;
  return std::max<std::int64_t>(1, (updated_parameters(parameters) + tile - 1) / tile);
}

void HostOptimizer::move_states(const StageParameters& parameters, StateBytes& states,
                                Bytes& frozen) {
  const OffloadOptions& offload = context_.recipe.offload;
  recipe::HostMemory& host = context_.host;
  if (offload.parameters != OffloadTo::none) {
    (offload.parameters == OffloadTo::cpu ? host.parameters : host.nvme) =
        states.parameters + frozen;
    states.parameters = frozen = Bytes(0);
  }
  if (!used()) return;
  const bool to_cpu = offload.optimizer == OffloadTo::cpu;
  Bytes& kept = to_cpu ? host.optimizer_state : host.nvme;
  kept = kept + states.optimizer_state;
  host.gradients = updated_gradients(context_, parameters);
  if (!context_.recipe.precision.keeps_whole_master() && offload.parameters == OffloadTo::none) {
    // What the host updates, where the states have no copy of the parameters.
    const Bytes own = updated_parameters(parameters) * size_of(trained_type(context_.recipe));
    Bytes& copy = to_cpu ? host.parameters : host.nvme;
    copy = copy + own;
  }
  const std::int64_t count = tiles(parameters);
  const Bytes streamed = nvme_read(states.optimizer_state, parameters);
  host.buffers = host.buffers + std::min(count, kTilesInFlight) * part_of(streamed, 0, count);
  states.optimizer_state = Bytes(0);
  if (gradients_leave()) states.gradients = Bytes(0);
}

Bytes HostOptimizer::nvme_read(Bytes states, const StageParameters& parameters) const {
  const OffloadOptions& offload = context_.recipe.offload;
  const bool alone = offload.parameters == OffloadTo::none;
  const bool reads_weights = !context_.recipe.precision.keeps_whole_master() &&
                             (alone ? offload.optimizer : offload.parameters) == OffloadTo::nvme;
  const Bytes weights = updated_parameters(parameters) * size_of(trained_type(context_.recipe));
  return (offload.optimizer == OffloadTo::nvme ? states : Bytes(0)) +
         (reads_weights ? weights : Bytes(0));
}

void HostOptimizer::copy_gradients(Bytes own, StreamSet waits, const std::string& name,
                                   MemoryKind kind, const char* owner) {
  if (own == Bytes(0)) return;
  ProgramBuilder& builder = context_.builder;
  builder.host_transfer(HostTransfer::to_host, own, waits, "copy " + name + " to the host");
  if (gradients_leave()) builder.last_gives_back(kind, own, owner);
  if (!accumulates() || context_.role.first) return;
  builder.host_transfer(HostTransfer::host_memory, 3 * own, stream_bit(StreamKind::to_host),
                        "add " + name + " on the host");
}

void HostOptimizer::take_leaving_gradients(Bytes own) {
  if (gradients_leave())
    context_.builder.last_takes(MemoryKind::communication_buffers, own, kLeaving);
}

void HostOptimizer::sum_squares(Bytes gradients) {
  context_.builder.host_transfer(HostTransfer::host_memory, gradients,
                                 stream_bit(StreamKind::to_host), "gradient norm on the host");
}

void HostOptimizer::scale(Bytes gradients, bool waits_for_ranks) {
  StreamSet waits = stream_bit(StreamKind::to_host);
  if (waits_for_ranks) waits |= stream_bit(StreamKind::data);
  context_.builder.host_transfer(HostTransfer::host_memory, 2 * gradients, waits,
                                 "clip gradients on the host");
}

HostOptimizer::Traffic HostOptimizer::traffic(const StageParameters& parameters) const {
  const recipe::TrainingRecipe& recipe = context_.recipe;
  Traffic traffic;
  Bytes states;
  for (const ReplicaGroup& group : context_.groups) {
    const std::int64_t own = group.parameters(parameters);
    const models::MemoryBound kernel = optimizer_kernel(own, recipe, group.strategy);
    traffic.touched = traffic.touched + kernel.read + kernel.written;
    states = states + state_bytes(own, recipe, group.strategy).optimizer_state;
  }
  const OffloadTo to = recipe.offload.parameters;
  const Bytes weights = updated_parameters(parameters) * size_of(weight_type(recipe));
  const bool weights_to_nvme = to == OffloadTo::nvme && recipe.precision.keeps_whole_master();
  traffic.read = nvme_read(states, parameters);
  traffic.written = traffic.read + (weights_to_nvme ? weights : Bytes(0));
  traffic.up = to == OffloadTo::none ? weights : Bytes(0);
  return traffic;
}

// Each order of enqueuing says what may overlap. A tile is read while the one before it is updated
// and the one before that is written: a mark lets the write of a tile wait for its own update only.
void HostOptimizer::update(const StageParameters& parameters) {
  const Traffic whole = traffic(parameters);
  const StreamSet compute = stream_bit(StreamKind::compute);
  const StreamSet host = stream_bit(StreamKind::host_optimizer);
  ProgramBuilder& builder = context_.builder;

  const std::int64_t count = tiles(parameters);
  const auto move = [&](HostTransfer transfer, Bytes all, std::int64_t at, StreamSet waits,
                        const char* what) {
    const Bytes bytes = part_of(all, at, count);
    if (bytes > Bytes(0))
      builder.host_transfer(transfer, bytes, waits, what + (" tile " + std::to_string(at)));
  };
  const auto read_tile = [&](std::int64_t at, StreamSet waits) {
    move(HostTransfer::nvme_read, whole.read, at, waits, "read states of");
  };
  const auto write_tile = [&](std::int64_t at) {
    move(HostTransfer::nvme_write, whole.written, at, host, "write states of");
  };
  read_tile(0, compute);
  for (std::int64_t at = 0; at < count; ++at) {
    if (whole.read > Bytes(0)) {
      builder.mark(StreamKind::host_optimizer, stream_bit(StreamKind::nvme_read),
                   "wait for states");
      if (at + 1 < count) read_tile(at + 1, compute | stream_bit(StreamKind::nvme_write));
    }
    if (at > 0) write_tile(at - 1);
    move(HostTransfer::host_memory, whole.touched, at, compute | stream_bit(StreamKind::to_host),
         "update");
    move(HostTransfer::to_device, whole.up, at, host, "copy parameters of");
  }
  write_tile(count - 1);
  builder.compute_waits_for(kOffloadStreams);
  builder.settle_waits("wait for the host's update");
}

}  // namespace trainyard::plan
