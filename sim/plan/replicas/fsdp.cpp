// PyTorch's fully sharded data parallelism as torchtitan wraps a transformer: each layer is a unit,
// what no layer holds (embedding, final norm, logits) is the root unit, which stays gathered from
// the forward to the end of the backward pass. The last layer stays too, as its backward follows at
// once. Source: Zhao et al., PyTorch FSDP, VLDB 2023, sections 3 and 4; torch.distributed.fsdp's
// fully_shard.
#include "sim/plan/replicas/data_parallel.h"

namespace trainyard::plan {

DataParallelStrategy fsdp(const recipe::DataParallelOptions& options,
                          const recipe::TrainingRecipe& recipe, int ranks) {
  DataParallelStrategy strategy;
  strategy.parameter_shards = strategy.gradient_shards = strategy.optimizer_shards = ranks;
  strategy.reduction = CollectiveKind::reduce_scatter;
  strategy.reduced_as = options.reduce_dtype.value_or(recipe.precision.gradients);
  strategy.each_microbatch = options.reduce_every_microbatch.value_or(true);
  strategy.layer_units = true;
  strategy.gathering = Gathering::each_pass;
  strategy.prefetch = options.prefetch_layers;
  strategy.limited = options.limit_all_gathers;
  strategy.keeps_layers = !options.reshard_after_forward;
  strategy.keeps_ends = true;
  return strategy;
}

}  // namespace trainyard::plan
