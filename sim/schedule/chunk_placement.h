// Which stage holds which virtual stage, and where its messages go: the only place that knows.
#pragma once

#include <compare>
#include <cstdint>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

// A part of a stage: one chunk of one copy of the network.
struct Seat {
  int stage = 0, chunk = 0;
  std::uint8_t direction = 0;
  friend auto operator<=>(const Seat&, const Seat&) = default;
};

// Towards which stage a message leaves. Under looped placement the last stage is before the first.
enum class Hop : std::uint8_t { stay, next, previous };

// Copies of the network.
inline int directions(const PipelineShape& shape) {
  return shape.placement == Placement::bidirectional ? 2 : 1;
}
// Virtual stages of one copy; they are numbered 0 .. in the direction of forward.
inline int virtual_stages(const PipelineShape& shape) {
  return shape.stages * shape.chunks;
}
// Parts that one stage holds, and the number of a slot's among them.
inline int parts(const PipelineShape& shape) {
  return directions(shape) * shape.chunks;
}
// `chunks`: of the shape.
inline int part(int chunks, const Slot& slot) {
  return slot.direction * chunks + slot.chunk;
}
inline int part(const PipelineShape& shape, const Slot& slot) {
  return part(shape.chunks, slot);
}
int part(const PipelineShape& shape, const Seat& seat);

int virtual_stage(const PipelineShape& shape, const Seat& seat);
inline int virtual_stage(const PipelineShape& shape, int stage, const Slot& slot) {
  return virtual_stage(shape, {stage, slot.chunk, slot.direction});
}
// The inverse. Requires: 0 <= virtual_stage < virtual_stages(shape).
Seat seat(const PipelineShape& shape, int virtual_stage, std::uint8_t direction);

// The hop from a virtual stage to the one after it; gradients go the opposite way.
// Requires: it is not the last.
Hop hop_forward(const PipelineShape& shape, int virtual_stage, std::uint8_t direction);
Hop opposite(Hop hop);

}  // namespace trainyard::schedule
