// Every rank has everything and all-reduces gradients: PyTorch's DistributedDataParallel, in which
// `each_microbatch` is training without no_sync(). Source: Li et al., PyTorch Distributed, VLDB
// 2020.
#include "sim/plan/replicas/parts/parts.h"

namespace trainyard::plan {

DataParallelStrategy allreduce(const recipe::DataParallelOptions& options,
                               const recipe::TrainingRecipe& /*recipe*/, int /*ranks*/) {
  DataParallelStrategy strategy;
  strategy.each_microbatch = options.reduce_every_microbatch.value_or(false);
  strategy.parts = {
      options.compression.used()
          ? exchange_compressed()
          : reduce_in_buckets({.small_first = true, .copies = !options.gradient_as_bucket_view}),
      optimizer_step(),
  };
  return strategy;
}

}  // namespace trainyard::plan
