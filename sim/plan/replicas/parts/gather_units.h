// Units: places of a stage whose parameters are gathered together.
#pragma once

#include <string>
#include <vector>

#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_context.h"

namespace trainyard::plan {

struct GatherUnit {
  int enters = 0, leaves = 0;  // first and last place of it in this pass
  ByGroup parameters = {};     // trained
  BytesByGroup frozen = {};
  bool gathers = false, frees = false;
  StreamKind stream = StreamKind::gather;
  std::string name;
};

// Both list in the order of the open pass, for gathers `prefetch` units ahead.

// Each layer is a unit. What `options` keeps on is gathered once for several passes; if it keeps
// the ends, those are the root unit, which is gathered before all others and is done with the last
// of its places backward.
std::vector<GatherUnit> layer_units(const ReplicaContext& context, const GatherOptions& options);

// Places that fill a bucket are a unit.
std::vector<GatherUnit> bucket_units(const ReplicaContext& context, const GatherOptions& options);

// Kept layers of a pipeline stay until the step's last backward of their chunk: between the forward
// and the backward pass of a micro-batch a stage runs others.
inline bool keeps_whole_step(const ReplicaContext& context) {
  return context.step.shape.stages > 1;
}

}  // namespace trainyard::plan
