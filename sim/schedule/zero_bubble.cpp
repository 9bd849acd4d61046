// ZB-H1 and ZB-H2: 1F1B whose weight gradients wait until a stage has nothing else to do.
//
//   Every micro-batch is F on all stages down, I (gradients of the inputs) back up, W (gradients of
//   the weights) any time later. Stage s warms up with k forwards, then runs F and I in turn; its
//   first d input gradients leave their W behind, which is done d micro-batches later.
//
//            k              d     time                                in flight   exact where
//   ZB-H1    p - s - 1      s     m (F+I+W) + (p-1)(F+I-W)            p           W <= min(F, I)
//   ZB-H2    2(p - s - 1)   2s    m (F+I+W), by the span of a stage   2p - 1      F = I = W
//
// The table is for equal stages without communication and m >= p (ZB-H2: m >= 2p - 1). ZB-H2's
// stages start s F late and end as late: the bubble between two steps is gone if the optimizer does
// not wait for all stages.
//
// Source: Qi, Wan, Huang, Lin, Zero Bubble Pipeline Parallelism, ICLR 2024, 2.1 and 2.2; built from
// the description there.
#include <algorithm>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
namespace {

// `warmup` forwards before the first backward; `behind` input gradients whose weight gradients
// wait.
std::vector<Slot> deferring(int microbatches, int warmup, int behind) {
  const int m = microbatches;
  std::vector<Slot> slots;
  for (int i = 0; i < std::min(warmup, m); ++i)
    slots.push_back({Pass::forward, i});
  for (int i = 0; i < m; ++i) {
    if (i + warmup < m) slots.push_back({Pass::forward, i + warmup});
    slots.push_back({Pass::backward_input, i});
    if (i >= behind) slots.push_back({Pass::backward_weight, i - behind});
  }
  for (int i = std::max(0, m - behind); i < m; ++i)
    slots.push_back({Pass::backward_weight, i});
  return slots;
}

}  // namespace

std::vector<Slot> zero_bubble_h1(const PipelineShape& shape, int stage) {
  return deferring(shape.microbatches, shape.stages - stage - 1, stage);
}

std::vector<Slot> zero_bubble_h2(const PipelineShape& shape, int stage) {
  return deferring(shape.microbatches, 2 * (shape.stages - stage - 1), 2 * stage);
}

}  // namespace trainyard::schedule
