// Replicas train apart for H steps and then meet: the sum of their changes is one step of an outer
// optimizer with momentum (DiLoCo; plain averaging is its special case). A step carries one H-th of
// what the meeting costs, so that it stands for H steps of training. Source: Stich, Local SGD, ICLR
// 2019; Douillard et al., DiLoCo, 2023, algorithm 1.
#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_part.h"

namespace trainyard::plan {

using models::Dtype;

namespace {

// One H-th of a meeting: the change since the last one is computed and all-reduced, the outer
// momentum and the common parameters are updated and copied into the weights.
class OuterOptimizer : public ReplicaPart {
 public:
  OuterOptimizer(ReplicaContext& context, int period) : context_(context), period_(period) {}

  void hold(const StageParameters& stage, const StateBytes& /*states*/) override {
    context_.builder.resident(MemoryKind::optimizer_state,
                              2 * (stage.dense + stage.experts) * size_of(Dtype::fp32),
                              "outer optimizer state");
  }

  void step(const StageParameters& stage, const std::vector<ChainRange>& /*copies*/) override {
    for (const ReplicaGroup& group : context_.groups)
      if (group.exchanges) meet(shard_of(group.parameters(stage), period_), group);
  }

 private:
  void meet(std::int64_t part, const ReplicaGroup& group) {
    if (part == 0) return;
    const Bytes single = part * size_of(Dtype::fp32);
    const Bytes weights = part * size_of(weight_type(context_.recipe));
    context_.copy("change of parameters", 2 * single, single, OpGroup::optimizer);
    context_.builder.collective(StreamKind::data, context_.within(group),
                                {CollectiveKind::all_reduce, single},
                                stream_bit(StreamKind::compute), "all-reduce change of parameters");
    context_.builder.compute_waits_for(stream_bit(StreamKind::data));
    context_.copy("outer optimizer step", 3 * single, 3 * single + weights, OpGroup::optimizer);
  }

  ReplicaContext& context_;
  int period_;  // H
};

}  // namespace

DataParallelStrategy local_sgd(const recipe::DataParallelOptions& options,
                               const recipe::TrainingRecipe& /*recipe*/, int /*ranks*/) {
  DataParallelStrategy strategy;
  strategy.trains_apart = true;
  strategy.parts = {optimizer_step(), [period = options.steps_between](ReplicaContext& context) {
                      return std::make_unique<OuterOptimizer>(context, period);
                    }};
  return strategy;
}

}  // namespace trainyard::plan
