#include "sim/plan/replicas/replica_context.h"

#include <algorithm>
#include <iterator>

#include "sim/plan/step_memory.h"
#include "sim/plan/tied_matrix.h"

namespace trainyard::plan {

using models::NetworkWork;
using models::WeightMatrix;
using recipe::ParallelPlan;

namespace {

bool has_experts(const NetworkWork& work) {
  return std::any_of(work.kinds.begin(), work.kinds.end(),
                     [](const models::LayerWork& kind) { return kind.expert_parameters > 0; });
}

// Two copies of the network are replicas of each other.
std::array<ReplicaGroup, 2> both_groups(const StepPlan& step, const NetworkWork& work,
                                        const recipe::TrainingRecipe& recipe,
                                        const ParallelPlan& plan) {
  ReplicaGroup dense;
  dense.strategy = strategy_of(plan, recipe);
  dense.ranks = plan.degrees.replicas() * directions(step.shape);
  dense.exchanges = dense.ranks > 1;
  ReplicaGroup experts{.experts = true, .name = "experts", .prefix = "experts of "};
  experts.ranks = plan.expert_replicas() * directions(step.shape);
  experts.strategy = among(experts.ranks, dense.strategy);
  experts.exchanges = experts.ranks > 1 && has_experts(work);
  if (dense.strategy.replicas > 1) {
    dense.shard_ranks = plan.degrees.replicas() / dense.strategy.replicas;
    experts.shard_ranks = plan.expert_replicas() / dense.strategy.replicas;
  }
  return {dense, experts};
}

}  // namespace

DataParallelStrategy among(int replicas, DataParallelStrategy strategy) {
  replicas /= strategy.replicas;
  for (int* shards :
       {&strategy.parameter_shards, &strategy.gradient_shards, &strategy.optimizer_shards})
    *shards = *shards > 1 ? replicas : 1;
  return strategy;
}

std::vector<WeightMatrix> ReplicaGroup::matrices(const std::vector<WeightMatrix>& all) const {
  std::vector<WeightMatrix> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const WeightMatrix& matrix) { return matrix.routed == experts; });
  return found;
}

ReplicaContext::ReplicaContext(ProgramBuilder& to, const StepPlan& of_step,
                               const NetworkWork& of_network,
                               const recipe::TrainingRecipe& by_recipe, const ParallelPlan& by_plan,
                               StageSide of_stage, bool once)
    : builder(to),
      step(of_step),
      work(of_network),
      recipe(by_recipe),
      plan(by_plan),
      stage(of_stage.stage),
      leads(of_stage.leads),
      gpus(of_stage.gpus),
      updates_once(once),
      groups(both_groups(of_step, of_network, by_recipe, by_plan)) {}

bool ReplicaContext::gradients_come_and_go() const {
  if (strategy().fresh_gradients) return true;
  return recipe.kernels.fusion != models::Fusion::by_hand && !accumulates() && updates_once &&
         !exchanges();
}

ConnectionId ReplicaContext::within(const ReplicaGroup& group) {
  return builder.connections().replicas(group.experts, group.shard_ranks);
}

ConnectionId ReplicaContext::across(const ReplicaGroup& group) {
  return builder.connections().across(group.experts, group.shard_ranks);
}

const models::LayerWork& ReplicaContext::layer(int place) const {
  return work.kinds[static_cast<std::size_t>(work.chain[static_cast<std::size_t>(place)])];
}

std::int64_t ReplicaContext::updated_at(const ReplicaGroup& group, int place) const {
  if (group.experts) return layer(place).expert_parameters;
  return layer(place).parameters - tied_with_earlier(step, work, place);
}

std::int64_t ReplicaContext::gradients_from(const ReplicaGroup& group, int place) const {
  if (group.experts) return layer(place).expert_parameters;
  return layer(place).parameters - tied_with_later(step, work, place);
}

BytesByGroup ReplicaContext::frozen_at(int place) const {
  return frozen_bytes(own_frozen(step, work, place), recipe);
}

void ReplicaContext::copy(const std::string& what, Bytes read, Bytes written, OpGroup group) {
  const models::WorkItem kernel =
      models::NamedKernel{what, models::MemoryBound{models::MemoryOp::elementwise, read, written}};
  builder.work({&kernel, 1}, "data parallel", group);
}

}  // namespace trainyard::plan
