// ZeRO-1 with gradients divided too: a rank keeps its part of a bucket and drops the rest as soon
// as it is reduced, so every micro-batch is reduced. Otherwise whole gradients have to wait for the
// last micro-batch, and nothing is saved. Source: Rajbhandari et al. 2020, section 5.2; DeepSpeed
// reduces at each gradient accumulation boundary of stage 2 and 3.
#include "sim/plan/replicas/data_parallel.h"

namespace trainyard::plan {

DataParallelStrategy zero2(const recipe::DataParallelOptions& options,
                           const recipe::TrainingRecipe& recipe, int ranks) {
  DataParallelStrategy strategy = zero1(options, recipe, ranks);
  strategy.each_microbatch = options.reduce_every_microbatch.value_or(true);
  if (strategy.each_microbatch) strategy.gradient_shards = ranks;
  return strategy;
}

}  // namespace trainyard::plan
