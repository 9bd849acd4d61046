// Megatron-LM's distributed optimizer: ZeRO-1 on whole gradient buffers, which are reduce-scattered
// during the last backward pass (overlap_grad_reduce); updated parameters are gathered under the
// first forward pass of the next step (overlap_param_gather), or at once. A step in the middle of
// training begins with the gathers of the one before it. Source: Megatron-LM,
// docs/source/api-guide/dist_optimizer.md: 6 + 12/d bytes per parameter with 16-bit parameters and
// fp32 gradients.
#include "sim/plan/replicas/parts/parts.h"

namespace trainyard::plan {

DataParallelStrategy distributed_optimizer(const recipe::DataParallelOptions& options,
                                           const recipe::TrainingRecipe& /*recipe*/, int ranks) {
  recipe::DataParallelOptions overlapped = options;
  overlapped.overlap_param_gather = options.overlap_param_gather.value_or(true);
  return sharded_states(overlapped, ranks, BucketFill::past);
}

}  // namespace trainyard::plan
