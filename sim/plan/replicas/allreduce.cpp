// Every rank has everything and all-reduces gradients: PyTorch's DistributedDataParallel, in which
// `each_microbatch` is training without no_sync(). Source: Li et al., PyTorch Distributed, VLDB
// 2020.
#include "sim/plan/replicas/data_parallel.h"

namespace trainyard::plan {

DataParallelStrategy allreduce(const recipe::DataParallelOptions& options,
                               const recipe::TrainingRecipe& recipe, int /*ranks*/) {
  DataParallelStrategy strategy;
  strategy.reduced_as = recipe.precision.gradients;
  strategy.each_microbatch = options.reduce_every_microbatch.value_or(false);
  strategy.bucket_copies = !options.gradient_as_bucket_view;
  return strategy;
}

}  // namespace trainyard::plan
