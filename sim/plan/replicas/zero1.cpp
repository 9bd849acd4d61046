// Optimizer states are divided: gradients are reduced to the rank that owns their states, updated
// parameters are gathered. DeepSpeed's first implementation all-reduced whole gradients instead,
// half as many bytes again; `all_reduce_gradients` is that. Source: Rajbhandari et al. 2020,
// sections 5.1 and 7.2; DeepSpeed, "ZeRO stage 1 with reduced communication".
#include "sim/plan/replicas/parts/parts.h"

namespace trainyard::plan {

DataParallelStrategy sharded_states(const recipe::DataParallelOptions& options, int ranks,
                                    BucketFill fill) {
  DataParallelStrategy strategy;
  strategy.optimizer_shards = ranks;
  strategy.each_microbatch = options.reduce_every_microbatch.value_or(false);
  const PartMaker reduce =
      reduce_in_buckets({.kind = options.all_reduce_gradients ? CollectiveKind::all_reduce
                                                              : CollectiveKind::reduce_scatter,
                         .fill = fill,
                         .copies = !options.gradient_as_bucket_view});
  if (options.overlap_param_gather.value_or(false)) {
    strategy.gathering = Gathering::first_forward;
    // What is gathered has its place already.
    strategy.parts = {gather_in_passes({.prefetch = 1, .limited = false}), reduce,
                      optimizer_step()};
  } else {
    strategy.gathering = Gathering::after_step;
    strategy.parts = {reduce, optimizer_step(), gather_updated()};
  }
  return strategy;
}

DataParallelStrategy zero1(const recipe::DataParallelOptions& options,
                           const recipe::TrainingRecipe& /*recipe*/, int ranks) {
  return sharded_states(options, ranks, BucketFill::within);
}

}  // namespace trainyard::plan
