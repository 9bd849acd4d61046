#include "sim/plan/replicas/parts/reduce_by_place.h"

#include "sim/plan/replicas/parts/owners.h"

namespace trainyard::plan {

// Gradients that are not kept whole cannot wait for the optimizer step. Copies of the network
// finish at different times on the ranks that share gradients: they are reduced after the last
// backward, in an order on which all agree.
bool ReduceByPlace::in_backward() const {
  return (context_.exchanges() || host_.used()) && directions(context_.step.shape) == 1 &&
         (context_.plan.data_parallel.overlap_backward || context_.strategy().each_microbatch ||
          always_in_backward_);
}

bool ReduceByPlace::reduces_now() const {
  return in_backward() && ends_backward(context_.pass) &&
         (context_.strategy().each_microbatch || context_.role.last);
}

PassRole ReduceByPlace::distinguishes(bool forward) const {
  if (forward) return {};
  return {.first = host_.accumulates(),
          .last = in_backward() && !context_.strategy().each_microbatch};
}

void ReduceByPlace::before(int place) {
  if (!ends_backward(context_.pass)) return;
  std::int64_t parameters = 0;
  for (const ReplicaGroup& group : context_.groups)
    if (group.strategy.gradient_shards > 1 || host_.gradients_leave())
      parameters += context_.gradients_from(group, place);
  context_.builder.hold(MemoryKind::gradients,
                        parameters * size_of(context_.recipe.precision.gradients), kUnreduced);
}

void ReduceByPlace::after(int place) {
  // A layer may have no kernel in this half of its backward pass, as an embedding has none in that
  // for the weights.
  if (in_backward() && ends_backward(context_.pass) && context_.strategy().gradient_shards > 1)
    context_.builder.settle(kUnreduced);
  if (reduces_now()) reduce_place(place);
}

void ReduceByPlace::end() {
  if (reduces_now()) reduce_rest();
}

void ReduceByPlace::step(const StageParameters& stage, const std::vector<ChainRange>& copies) {
  const bool exchanges = context_.exchanges();
  if ((exchanges || host_.used()) && !in_backward()) reduce_all(stage, copies);
  if (exchanges) context_.builder.compute_waits_for(stream_bit(StreamKind::data));
}

void ReduceByPlace::reduce_all(const StageParameters& stage,
                               const std::vector<ChainRange>& copies) {
  for (const ChainRange& range : copies) {
    for (int place = range.last - 1; place >= range.first; --place)
      reduce_place(place);
    reduce_rest();
  }
  if (!copies.empty()) return;
  reduce_stage(stage);
  reduce_rest();
}

}  // namespace trainyard::plan
