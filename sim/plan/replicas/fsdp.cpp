// PyTorch's fully sharded data parallelism as torchtitan wraps a transformer: each layer is a unit,
// what no layer holds (embedding, final norm, logits) is the root unit, which stays gathered from
// the forward to the end of the backward pass. The last layer stays too, as its backward follows at
// once. Source: Zhao et al., PyTorch FSDP, VLDB 2023, sections 3 and 4; torch.distributed.fsdp's
// fully_shard.
#include "sim/plan/replicas/parts/gather.h"
#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/parts/reduce_units.h"

namespace trainyard::plan {
namespace {

// Each unit is reduced as soon as the backward pass is done with its parameters.
class ShardedUnits : public ReplicaPart {
 public:
  ShardedUnits(ReplicaContext& context, const GatherOptions& options, models::Dtype reduced_as)
      : gather_(context, options), reduction_(context, reduced_as) {}

  PassRole distinguishes(bool forward) const override {
    const PassRole gathers = gather_.distinguishes(forward);
    const PassRole reduces = reduction_.distinguishes(forward);
    return {gathers.first || reduces.first, gathers.last || reduces.last};
  }
  void begin() override { gather_.begin(); }
  void before(int place) override {
    gather_.before(place);
    reduction_.before(place);
  }
  void after(int place) override {
    for (const GatherUnit& unit : gather_.leaving(place)) {
      gather_.leave(unit);
      reduction_.leave(unit);
    }
  }
  void step(const StageParameters& /*stage*/, const std::vector<ChainRange>& /*copies*/) override {
    reduction_.step();
  }

 private:
  Gather gather_;
  UnitReduction reduction_;
};

}  // namespace

DataParallelStrategy fsdp(const recipe::DataParallelOptions& options,
                          const recipe::TrainingRecipe& recipe, int ranks) {
  DataParallelStrategy strategy;
  strategy.parameter_shards = strategy.gradient_shards = strategy.optimizer_shards = ranks;
  strategy.gathering = Gathering::each_pass;
  strategy.each_microbatch = options.reduce_every_microbatch.value_or(true);
  strategy.layer_units = true;
  const GatherOptions gather{.prefetch = options.prefetch_layers,
                             .limited = options.limit_all_gathers,
                             .keeps_layers = !options.reshard_after_forward,
                             .keeps_ends = true};
  const models::Dtype reduced_as = options.reduce_dtype.value_or(recipe.precision.gradients);
  strategy.parts = {[gather, reduced_as](ReplicaContext& context) {
                      return std::make_unique<ShardedUnits>(context, gather, reduced_as);
                    },
                    optimizer_step()};
  return strategy;
}

}  // namespace trainyard::plan
