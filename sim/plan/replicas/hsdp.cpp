// FSDP inside groups of `shard_size` neighbours, replicas across: parameters and gradients move in
// the group, only the reduced shards of gradients across. Source: Zhao et al. 2023, section 3.2.2
// (hybrid sharding).
#include "sim/plan/replicas/data_parallel.h"

namespace trainyard::plan {

DataParallelStrategy hsdp(const recipe::DataParallelOptions& options,
                          const recipe::TrainingRecipe& recipe, int ranks) {
  DataParallelStrategy strategy = fsdp(options, recipe, options.shard_size);
  strategy.replicas = ranks / options.shard_size;
  return strategy;
}

}  // namespace trainyard::plan
