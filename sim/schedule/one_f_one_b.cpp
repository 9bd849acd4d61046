// One forward, one backward, after p - stage - 1 warm-up forwards.
//
//   time (equal stages, no communication) = (m + p - 1)(F + B), as GPipe, but at most p - stage
//   activations live at once.
//
// Paired, which takes a single stage, each forward but the first overlaps with the backward of the
// micro-batch before it (Megatron-LM's overlap_moe_expert_parallel_comm without a pipeline).
//
// It is also the order of the asynchronous PipeDream and PipeDream-2BW, whose micro-batches never
// end: a step takes m max over stages of (F + B), and a stage keeps old versions of its weights for
// the micro-batches under way (schedule.h, Updates).
//
// Source: Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, SOSP
// 2019; Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM, SC 2021, 2.2.1 (PipeDream-Flush).
#include <algorithm>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

std::vector<Slot> one_f_one_b(const PipelineShape& shape, int stage) {
  const int m = shape.microbatches;
  const int warmup = std::min(shape.stages - stage - 1 + (shape.paired ? 1 : 0), m);
  std::vector<Slot> slots;
  slots.reserve(2 * static_cast<std::size_t>(m));
  for (int i = 0; i < warmup; ++i)
    slots.push_back({Pass::forward, i});
  for (int i = warmup; i < m; ++i) {
    slots.push_back({Pass::forward, i});
    slots.back().paired = shape.paired;
    slots.push_back({Pass::backward, i - warmup});
  }
  for (int i = m - warmup; i < m; ++i)
    slots.push_back({Pass::backward, i});
  return slots;
}

}  // namespace trainyard::schedule
