// FSDP inside groups of `shard_size` neighbours, replicas across: parameters and gradients move in
// the group, only the reduced shards of gradients across. Source: Zhao et al. 2023, section 3.2.2
// (hybrid sharding).
#include "sim/plan/replicas/data_parallel.h"

namespace trainyard::plan {

DataParallelStrategy hsdp(const recipe::DataParallelOptions& options,
                          const recipe::TrainingRecipe& recipe, int ranks) {
  // A scenario that does not say it is refused, and is asked other things before.
  const int shards = options.shard_size.is_said() ? int{options.shard_size} : ranks;
  DataParallelStrategy strategy = fsdp(options, recipe, shards);
  strategy.replicas = ranks / shards;
  return strategy;
}

}  // namespace trainyard::plan
