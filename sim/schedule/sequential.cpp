// Plain model parallelism: a micro-batch goes forward through all stages and back again before the
// next one starts, so one stage works at a time.
//
//   time (no communication) = m (sum of F over stages + sum of B over stages)
//
// No stage waits for a barrier: the first stage starts a micro-batch after its own backward of the
// previous one, and that backward is the last pass of the previous one anywhere.
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

std::vector<Slot> sequential(const PipelineShape& shape, int /*stage*/) {
  std::vector<Slot> slots;
  for (int i = 0; i < shape.microbatches; ++i) {
    slots.push_back({Pass::forward, i});
    slots.push_back({Pass::backward, i});
  }
  return slots;
}

}  // namespace trainyard::schedule
