#include "sim/schedule/chunk_placement.h"

#include "sim/base/check.h"

namespace trainyard::schedule {

std::string_view name(Placement placement) {
  switch (placement) {
    case Placement::looped: return "looped";
    case Placement::v_shaped: return "v";
    case Placement::bidirectional: return "bidirectional";
  }
  return "?";
}

int part(const PipelineShape& shape, const Seat& seat) {
  return seat.direction * shape.chunks + seat.chunk;
}

int virtual_stage(const PipelineShape& shape, const Seat& seat) {
  switch (shape.placement) {
    case Placement::looped: return seat.chunk * shape.stages + seat.stage;
    case Placement::v_shaped:
      return seat.chunk == 0 ? seat.stage : 2 * shape.stages - 1 - seat.stage;
    case Placement::bidirectional:
      return seat.direction == 0 ? seat.stage : shape.stages - 1 - seat.stage;
  }
  TRAINYARD_CHECK(false, "placement {}", static_cast<int>(shape.placement));
  return 0;
}

Seat seat(const PipelineShape& shape, int virtual_stage, std::uint8_t direction) {
  TRAINYARD_CHECK(0 <= virtual_stage && virtual_stage < virtual_stages(shape),
                  "virtual stage {} of {}", virtual_stage, virtual_stages(shape));
  const int p = shape.stages;
  switch (shape.placement) {
    case Placement::looped: return {virtual_stage % p, virtual_stage / p, direction};
    case Placement::v_shaped:
      return virtual_stage < p ? Seat{virtual_stage, 0, direction}
                               : Seat{2 * p - 1 - virtual_stage, 1, direction};
    case Placement::bidirectional:
      return {direction == 0 ? virtual_stage : p - 1 - virtual_stage, 0, direction};
  }
  TRAINYARD_CHECK(false, "placement {}", static_cast<int>(shape.placement));
  return {};
}

Hop hop_forward(const PipelineShape& shape, int virtual_stage, std::uint8_t direction) {
  const Seat from = seat(shape, virtual_stage, direction);
  const Seat to = seat(shape, virtual_stage + 1, direction);
  if (from.stage == to.stage) return Hop::stay;
  if (shape.placement == Placement::looped) return Hop::next;
  return to.stage > from.stage ? Hop::next : Hop::previous;
}

Hop opposite(Hop hop) {
  switch (hop) {
    case Hop::stay: return Hop::stay;
    case Hop::next: return Hop::previous;
    case Hop::previous: return Hop::next;
  }
  return Hop::stay;
}

}  // namespace trainyard::schedule
