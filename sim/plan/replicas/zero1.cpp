// Optimizer states are divided: gradients are reduced to the rank that owns their states, updated
// parameters are gathered. DeepSpeed's first implementation all-reduced whole gradients instead,
// half as many bytes again; `all_reduce_gradients` is that. Source: Rajbhandari et al. 2020,
// sections 5.1 and 7.2; DeepSpeed, "ZeRO stage 1 with reduced communication".
#include "sim/plan/replicas/data_parallel.h"

namespace trainyard::plan {

DataParallelStrategy zero1(const recipe::DataParallelOptions& options,
                           const recipe::TrainingRecipe& recipe, int ranks) {
  DataParallelStrategy strategy = allreduce(options, recipe, ranks);
  strategy.optimizer_shards = ranks;
  strategy.reduction =
      options.all_reduce_gradients ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter;
  strategy.gathering = options.overlap_param_gather.value_or(false) ? Gathering::first_forward
                                                                    : Gathering::after_step;
  strategy.prefetch = 1;
  strategy.limited = false;  // what is gathered has its place already
  return strategy;
}

}  // namespace trainyard::plan
