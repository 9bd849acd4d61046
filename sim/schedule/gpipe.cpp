// All forwards, then all backwards, both in the order of the micro-batches.
//
//   time (equal stages, no communication) = (m + p - 1)(F + B); every activation lives at once: m
//
// Backwards run first in, first out, as Narayanan et al. draw GPipe (SC 2021, figure 3) and
// PyTorch's ScheduleGPipe runs it; Huang et al. draw them last in, first out (figure 2c). Time and
// peak memory are the same.
// Source: Huang et al., GPipe: Efficient Training of Giant Neural Networks, NeurIPS 2019, 2.3.
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

std::vector<Slot> gpipe(const PipelineShape& shape, int /*stage*/) {
  std::vector<Slot> slots;
  for (int i = 0; i < shape.microbatches; ++i)
    slots.push_back({Pass::forward, i});
  for (int i = 0; i < shape.microbatches; ++i)
    slots.push_back({Pass::backward, i});
  return slots;
}

}  // namespace trainyard::schedule
