// Passes of a stage that run the same block.
#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "sim/plan/cast.h"
#include "sim/plan/pipeline_messages.h"
#include "sim/plan/replicas/replica_context.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// Of the same part of the stage, with the same messages before; or, by its kind, the step.
struct BlockKey {
  CallKind kind = CallKind::forward;
  schedule::Seat seat = {}, backward_seat = {};  // the second of a pair
  PassRole role = {}, backward_role = {};
  std::vector<PipelineMessage> receives = {};
  bool whole = false, backward_whole = false;  // does not run again
  bool fetched = false;  // its first offloaded activations, by the pass before
  std::optional<schedule::Seat> then_fetch = {};  // the first ones of the backward pass after it
  auto operator<=>(const BlockKey&) const = default;
};

}  // namespace trainyard::plan
