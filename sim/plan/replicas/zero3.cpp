// Parameters are divided as well: each layer is gathered before its forward and again before its
// backward, and dropped after. Layers, embedding and logits are units of their own, none is kept.
// Source: Rajbhandari et al. 2020, sections 5.3 and 7.2.2.
#include "sim/plan/replicas/parts/parts.h"

namespace trainyard::plan {

DataParallelStrategy zero3(const recipe::DataParallelOptions& options,
                           const recipe::TrainingRecipe& recipe, int ranks) {
  DataParallelStrategy strategy = zero2(options, recipe, ranks);
  strategy.parameter_shards = ranks;
  strategy.gathering = Gathering::each_pass;
  strategy.parts = {
      gather_in_passes({.prefetch = options.prefetch_layers, .limited = options.limit_all_gathers}),
      reduce_in_buckets({.kind = CollectiveKind::reduce_scatter, .fill = BucketFill::within}),
      optimizer_step(),
  };
  return strategy;
}

}  // namespace trainyard::plan
