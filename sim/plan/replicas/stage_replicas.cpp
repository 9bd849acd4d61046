#include "sim/plan/replicas/stage_replicas.h"

#include <algorithm>

#include "sim/plan/replicas/parts/host_optimizer.h"
#include "sim/plan/replicas/parts/owners.h"

namespace trainyard::plan {

using schedule::Pass;
using schedule::Slot;

StageReplicas::StageReplicas(ProgramBuilder& builder, const StepPlan& step,
                             const models::NetworkWork& work, const recipe::TrainingRecipe& recipe,
                             const recipe::ParallelPlan& plan, StageSide side, bool updates_once)
    : context_(builder, step, work, recipe, plan, side, updates_once) {
  for (const PartMaker& make : context_.strategy().parts)
    parts_.push_back(make(context_));
}

Bytes StageReplicas::gradient_bytes(int place) const {
  Bytes bytes;
  for (const ReplicaGroup& group : context_.groups)
    bytes =
        bytes +
        state_bytes(context_.updated_at(group, place), context_.recipe, group.strategy).gradients;
  return bytes;
}

Bytes StageReplicas::gradients_of_pass(ChainRange places) const {
  if (!gives_gradients_back()) return Bytes(0);
  std::int64_t parameters = 0;
  for (int place = places.first; place < places.last; ++place)
    for (const ReplicaGroup& group : context_.groups)
      parameters += context_.updated_at(group, place);
  return unsummed_gradients(parameters, context_.recipe);
}

bool StageReplicas::gives_gradients_back() const {
  return sums_gradients() && context_.recipe.accumulation == recipe::Accumulation::after_pass;
}

bool StageReplicas::sums_gradients() const {
  return !context_.strategy().layer_units && !context_.strategy().fresh_gradients;
}

std::vector<models::WorkItem> StageReplicas::accumulation(std::int64_t parameters) const {
  if (!sums_gradients()) return {};
  return accumulation_work(parameters, context_.recipe, context_.step.shape.microbatches);
}

void StageReplicas::hold_states(const StageParameters& parameters, int versions) {
  ProgramBuilder& builder = context_.builder;
  StateBytes states;
  for (const ReplicaGroup& group : context_.groups) {
    const StateBytes own =
        state_bytes(group.parameters(parameters), context_.recipe, group.strategy);
    states.parameters = states.parameters + own.parameters;
    states.gradients = states.gradients + own.gradients;
    states.optimizer_state = states.optimizer_state + own.optimizer_state;
  }
  Bytes frozen;
  for (std::size_t i = 0; i < parameters.frozen.size(); ++i)
    frozen = frozen + Bytes(shard_of(parameters.frozen[i].count(),
                                     context_.groups[i].strategy.parameter_shards));
  // What the others hold comes and goes with each pass.
  if (!context_.leads) {
    for (const std::unique_ptr<ReplicaPart>& part : parts_)
      part->hold(parameters, states);
    return;
  }
  HostOptimizer(context_).move_states(parameters, states, frozen);
  builder.resident(MemoryKind::parameters, states.parameters, "parameters");
  builder.resident(MemoryKind::parameters, frozen, "frozen parameters");
  if (!context_.strategy().layer_units && !gradients_come_and_go())
    builder.resident(MemoryKind::gradients, states.gradients, kGradients);
  if (sums_gradients() && !gives_gradients_back() && !context_.recipe.forward_only)
    builder.resident(MemoryKind::gradients,
                     unsummed_gradients(parameters.dense + parameters.experts, context_.recipe),
                     kUnsummed);
  if (!context_.recipe.forward_only)
    builder.resident(MemoryKind::gradients, parameters.placeholders, "placeholders of gradients");
  builder.resident(MemoryKind::optimizer_state, states.optimizer_state, "optimizer state");
  builder.resident(MemoryKind::parameters, (versions - 1) * states.parameters,
                   "older versions of the parameters");
  builder.resident(MemoryKind::parameters, parameters.fp8_copies, "fp8 copies of the weights");
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->hold(parameters, states);
}

std::uint32_t StageReplicas::pools() const {
  if (!context_.strategy().layer_units) return 0;
  const auto bit = [](MemoryKind kind) { return 1U << static_cast<unsigned>(kind); };
  const bool sums_unsharded = !context_.strategy().each_microbatch && context_.accumulates();
  return bit(MemoryKind::parameters) | bit(MemoryKind::communication_buffers) |
         (sums_unsharded ? 0 : bit(MemoryKind::gradients));
}

void StageReplicas::look_at(const std::vector<Slot>& order) {
  for (const std::unique_ptr<ReplicaPart>& part : parts_) {
    for (std::size_t way = 0; way < asked_.size(); ++way) {
      const PassRole own = part->distinguishes(way == 0);
      asked_[way].first = asked_[way].first || own.first;
      asked_[way].last = asked_[way].last || own.last;
    }
  }
  // Whole steps are the same order again and again.
  const Rounds& rounds = context_.step.rounds;
  passes_of_step_ = order.size() / static_cast<std::size_t>(rounds.whole ? rounds.count : 1);
  const schedule::PipelineShape& shape = context_.step.shape;
  for (std::vector<std::size_t>& by_part : first_passes_)
    by_part.assign(static_cast<std::size_t>(schedule::parts(shape)), order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool forward = order[i].pass == Pass::forward;
    if (!forward && !ends_backward(order[i].pass)) continue;
    const auto at = static_cast<std::size_t>(part(shape, order[i]));
    std::size_t& first = first_passes_[forward ? 0 : 1][at];
    first = std::min(first, i);
  }
}

PassRole StageReplicas::role(const std::vector<Slot>& order, std::size_t at, bool completes) {
  if (first_passes_[0].empty()) look_at(order);
  const schedule::PipelineShape& shape = context_.step.shape;
  const std::size_t way = order[at].pass == Pass::forward ? 0 : 1;
  const auto in_part = static_cast<std::size_t>(part(shape, order[at]));
  const bool is_first = at % passes_of_step_ == first_passes_[way][in_part];
  return {.first = asked_[way].first && is_first, .last = asked_[way].last && completes};
}

void StageReplicas::start() {
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->start();
}

void StageReplicas::begin(Pass pass, ChainRange range, PassRole role) {
  context_.pass = pass;
  context_.range = range;
  context_.role = role;
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->begin();
}

void StageReplicas::before(int place) {
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->before(place);
}

void StageReplicas::after(int place) {
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->after(place);
}

// Of the strategies' parts one reduces.
std::vector<GradientCut> StageReplicas::cuts(int place,
                                             const std::vector<models::WorkItem>& backward) const {
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    if (std::vector<GradientCut> cuts = part->cuts(place, backward); !cuts.empty()) return cuts;
  return {};
}

void StageReplicas::during(int place, const GradientCut& cut) {
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->during(place, cut);
}

void StageReplicas::end() {
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->end();
}

void StageReplicas::step(const StageParameters& parameters, const std::vector<ChainRange>& copies) {
  for (const std::unique_ptr<ReplicaPart>& part : parts_)
    part->step(parameters, copies);
}

}  // namespace trainyard::plan
