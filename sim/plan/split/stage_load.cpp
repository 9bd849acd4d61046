#include "sim/plan/split/stage_load.h"

#include <algorithm>

#include "sim/recipe/stage_orders.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using schedule::PipelineShape;

StageLoads::StageLoads(const models::NetworkWork& work, const PipelineShape& shape,
                       const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan)
    : work_(work),
      recipe_(recipe),
      dense_{.strategy = strategy_of(plan, recipe), .each = {}},
      experts_{.strategy = among(plan.expert_replicas() * directions(shape), dense_.strategy),
               .each = {}} {
  for (Group* group : {&dense_, &experts_})
    group->each = state_bytes(1, recipe, group->strategy);
}

Bytes StageLoads::Group::states(std::int64_t parameters) const {
  return shard_of(parameters, strategy.parameter_shards) * each.parameters +
         shard_of(parameters, strategy.gradient_shards) * each.gradients +
         shard_of(parameters, strategy.optimizer_shards) * each.optimizer_state;
}

Bytes StageLoads::Group::weights(Bytes frozen) const {
  return Bytes(shard_of(frozen.count(), strategy.parameter_shards));
}

double StageLoads::work(int place, const StageGpus& gpus) const {
  if (gpus.times.empty()) return layer(place).forward_model_flops.count();
  return gpus.times[static_cast<std::size_t>(work_.chain[static_cast<std::size_t>(place)])];
}

void StageLoads::add(Load& load, int place, const StageGpus& gpus) const {
  const models::LayerWork& own = layer(place);
  load.work += work(place, gpus);
  load.parameters += own.parameters;
  load.expert_parameters += own.expert_parameters;
  const std::array<Bytes, 2> frozen = frozen_bytes(own.frozen, recipe_);
  for (std::size_t group = 0; group < frozen.size(); ++group)
    load.frozen[group] = load.frozen[group] + frozen[group];
  // Without a backward pass no layer keeps anything for it.
  const Bytes kept = own.activations() + own.logits;
  load.kept = recipe_.forward_only ? std::max(load.kept, kept) : load.kept + kept;
  load.workspace = std::max({load.workspace, own.workspace(), own.forward_transient});
  load.divisible += work_.divisible[static_cast<std::size_t>(place)] ? 1 : 0;
}

Bytes StageLoads::memory(const Load& load, int held) const {
  return dense_.states(load.parameters) + experts_.states(load.expert_parameters) +
         dense_.weights(load.frozen[0]) + experts_.weights(load.frozen[1]) +
         (recipe_.forward_only ? 1 : held) * load.kept + load.workspace;
}

std::vector<int> most_held(const PipelineShape& shape, const recipe::ParallelPlan& plan) {
  std::vector<int> most(static_cast<std::size_t>(virtual_stages(shape)), 0);
  const auto known = recipe::stage_orders(plan, shape);
  const schedule::StageOrders& orders = *known;
  for (int stage = 0; stage < shape.stages; ++stage) {
    std::vector<std::array<int, 2>> held(most.size(), {0, 0});
    for (const schedule::Slot& slot : orders[static_cast<std::size_t>(stage)]) {
      const auto at = static_cast<std::size_t>(virtual_stage(shape, stage, slot));
      int& own = held[at][slot.direction];
      if (slot.pass == schedule::Pass::forward) most[at] = std::max(most[at], ++own);
      if (ends_backward(slot.pass)) --own;
    }
  }
  return most;
}

}  // namespace trainyard::plan
