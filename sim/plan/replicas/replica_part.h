// A part of a strategy of data parallelism: something that it does beside the passes of a stage.
// Each part writes its ops and its memory through the same doors.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/plan/replicas/replica_context.h"
#include "sim/plan/step_memory.h"

namespace trainyard::plan {

// A point in the backward pass of a place at which gradients leave.
struct GradientCut {
  std::size_t items = 0;    // of the pass, before it
  ByGroup tensors = {};     // of each group whose gradients are there and were not at the last cut
  ByGroup parameters = {};  // in those
};

class ReplicaPart {
 public:
  virtual ~ReplicaPart() = default;

  // Memory that stays; `states` are those of the stage as far as the GPU holds them.
  virtual void hold(const StageParameters& /*stage*/, const StateBytes& /*states*/) {}

  // Before the first pass of all, in a block of its own, where ranks go at their own pace.
  virtual void start() {}

  // By which roles this part tells forward passes, or backward ones, apart.
  virtual PassRole distinguishes(bool /*forward*/) const { return {}; }

  // Around the work of a block, whose pass stands in the context: begin() after begin_block(), then
  // before() and after() each place in the order of the pass, end() after the last.
  virtual void begin() {}
  virtual void before(int /*place*/) {}
  virtual void after(int /*place*/) {}
  virtual void end() {}

  // Where gradients leave before the open backward pass is done with a place, of whose items
  // `backward` are; during() is called at each such point.
  virtual std::vector<GradientCut> cuts(int /*place*/,
                                        const std::vector<models::WorkItem>& /*backward*/) const {
    return {};
  }
  virtual void during(int /*place*/, const GradientCut& /*cut*/) {}

  // In the block of the optimizer step. `copies`: parts of a stage that holds several copies of the
  // network, in the order in which they are reduced.
  virtual void step(const StageParameters& /*stage*/, const std::vector<ChainRange>& /*copies*/) {}
};

}  // namespace trainyard::plan
