// Looped GPipe, breadth first: all micro-batches through chunk 0, then all through chunk 1, and so
// on; backward the same from the last chunk. Each chunk's parameters are needed and its gradients
// complete at one time, which suits sharded data parallelism.
//
//   time (equal chunks of F and B, no communication) = ((v - 1) max(m, p) + m + p - 1)(F + B)
//   activations of chunks that live at once: m v
//
// Source: Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023, 4.
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

std::vector<Slot> breadth_first(const PipelineShape& shape, int /*stage*/) {
  std::vector<Slot> slots;
  for (int chunk = 0; chunk < shape.chunks; ++chunk)
    for (int i = 0; i < shape.microbatches; ++i)
      slots.push_back({Pass::forward, i, chunk});
  for (int chunk = shape.chunks - 1; chunk >= 0; --chunk)
    for (int i = 0; i < shape.microbatches; ++i)
      slots.push_back({Pass::backward, i, chunk});
  return slots;
}

}  // namespace trainyard::schedule
