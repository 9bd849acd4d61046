#include "sim/plan/replicas/parts/reduce_units.h"

#include "sim/plan/replicas/parts/owners.h"

namespace trainyard::plan {

PassRole UnitReduction::distinguishes(bool forward) const {
  return {.first = !forward, .last = !forward && !context_.strategy().each_microbatch};
}

void UnitReduction::before(int place) {
  if (!ends_backward(context_.pass)) return;
  std::int64_t parameters = 0;
  for (const ReplicaGroup& group : context_.groups)
    parameters += context_.gradients_from(group, place);
  context_.builder.hold(MemoryKind::gradients,
                        parameters * size_of(stored_type(context_.recipe.precision.compute)),
                        kUnreduced);
}

void UnitReduction::leave(const GatherUnit& unit) {
  if (!ends_backward(context_.pass)) return;
  const std::int64_t parameters = unit.parameters[0] + unit.parameters[1];
  const Bytes produced = parameters * size_of(stored_type(context_.recipe.precision.compute));
  const Bytes cast = parameters * size_of(type_);
  if (context_.strategy().each_microbatch || !context_.accumulates() || context_.role.last)
    reduce(unit, produced, cast);
  else
    accumulate(unit, produced, cast);
}

void UnitReduction::step() {
  context_.builder.compute_waits_for(stream_bit(StreamKind::data));
  if (context_.strategy().replicas > 1)
    context_.builder.compute_waits_for(stream_bit(StreamKind::replica));
}

void UnitReduction::accumulate(const GatherUnit& unit, Bytes produced, Bytes cast) {
  const bool first = context_.role.first;
  if (first) context_.builder.hold(MemoryKind::gradients, cast, kAccumulated);
  context_.copy("accumulate gradients of " + unit.name, first ? produced : produced + cast, cast,
                OpGroup::compute);
  context_.builder.release(MemoryKind::gradients, produced, kUnreduced);
}

void UnitReduction::reduce(const GatherUnit& unit, Bytes produced, Bytes cast) {
  ProgramBuilder& builder = context_.builder;
  const bool accumulated = !context_.strategy().each_microbatch && context_.accumulates();
  std::int64_t sent = 0;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i)
    if (context_.groups[i].exchanges) sent += unit.parameters[i];
  builder.compute_waits_for(stream_bit(StreamKind::data));
  builder.hold(MemoryKind::communication_buffers, sent * size_of(type_), kReduceBuffer);
  // What nobody else holds is added to its sum at once.
  for (std::size_t i = 0; i < unit.parameters.size(); ++i)
    if (!context_.groups[i].exchanges)
      builder.hold(MemoryKind::gradients, kept_gradients(unit.parameters[i], context_.groups[i]),
                   kGradients);
  context_.copy("copy gradients of " + unit.name, accumulated ? produced + cast : produced, cast,
                OpGroup::compute);
  builder.release(MemoryKind::gradients, produced, kUnreduced);
  if (accumulated) builder.release(MemoryKind::gradients, cast, kAccumulated);

  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const ReplicaGroup& group = context_.groups[i];
    if (group.exchanges && (!group.experts || unit.parameters[i] > 0))
      scatter(unit.parameters[i], group, group.prefix + unit.name);
  }
  if (host_.used()) copy_to_host(unit);
  if (!context_.plan.data_parallel.overlap_backward)
    builder.compute_waits_for(stream_bit(StreamKind::data) | stream_bit(StreamKind::replica));
}

void UnitReduction::scatter(std::int64_t parameters, const ReplicaGroup& group,
                            const std::string& name) {
  ProgramBuilder& builder = context_.builder;
  const Bytes sent = parameters * size_of(type_);
  const bool scatters = group.strategy.gradient_shards > 1;
  if (scatters) {
    builder.collective(
        StreamKind::data, context_.within(group), {CollectiveKind::reduce_scatter, sent},
        stream_bit(StreamKind::compute) | kGatherStreams, "reduce-scatter gradients of " + name);
    builder.last_gives_back(MemoryKind::communication_buffers, sent, kReduceBuffer);
    builder.last_takes(MemoryKind::gradients, kept_gradients(parameters, group), kGradients);
  }
  if (group.strategy.replicas == 1) return;
  const Bytes shard(shard_of(sent.count(), group.strategy.gradient_shards));
  builder.collective(StreamKind::replica, context_.across(group),
                     {CollectiveKind::all_reduce, shard},
                     stream_bit(StreamKind::data) | stream_bit(StreamKind::compute),
                     "all-reduce gradient shards of " + name);
  if (scatters) return;
  builder.last_gives_back(MemoryKind::communication_buffers, sent, kReduceBuffer);
  builder.last_takes(MemoryKind::gradients, kept_gradients(parameters, group), kGradients);
}

void UnitReduction::copy_to_host(const GatherUnit& unit) {
  Bytes own;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i)
    own = own +
          state_bytes(unit.parameters[i], context_.recipe, context_.groups[i].strategy).gradients;
  host_.copy_gradients(own,
                       stream_bit(StreamKind::compute) | stream_bit(StreamKind::data) |
                           stream_bit(StreamKind::replica),
                       "gradients of " + unit.name, MemoryKind::gradients, kGradients);
}

Bytes UnitReduction::kept_gradients(std::int64_t parameters, const ReplicaGroup& group) {
  const Bytes own = state_bytes(parameters, context_.recipe, group.strategy).gradients;
  if (host_.used()) return own;
  if (context_.strategy().each_microbatch && !context_.role.first) return Bytes(0);
  context_.held_gradients = context_.held_gradients + own;
  return own;
}

}  // namespace trainyard::plan
