// The buffers of a stage's gradients under Horovod's cycles, by what its layers are estimated to
// take: without other traffic, and with kernels as the host and those before them let them begin.
#pragma once

#include <vector>

#include "sim/plan/replicas/parts/cycles/fuse_by_cycles.h"
#include "sim/plan/replicas/replica_context.h"

namespace trainyard::plan {

// Of the backward pass whose gradients leave, the last of the step. Empty: gradients leave in
// buckets. Requires: where DataParallelOptions::cycle_time is above 0, one stage, and
// StageGpus::layers in the context.
std::vector<FusedGradients> fused_gradients(const ReplicaContext& context);

}  // namespace trainyard::plan
