// Orders as words that people write: a custom schedule of a scenario.
//
//   "F0 F1 B0 F2+B1 I2 W2": one string per stage. A word is a pass (F forward, B backward, I and W
//   its halves: gradients of the inputs and of the weights), a micro-batch, and where stages have
//   several parts a letter: the chunk (a, b, ...), or the copy of the network under bidirectional
//   placement (a down, b up the stages). '+' joins a forward and a backward that overlap.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

// The name in a scenario of a schedule that is given in full.
inline constexpr std::string_view kCustomSchedule = "custom";

struct CustomSchedule {
  Placement placement = Placement::looped;
  std::vector<std::string> slots;  // by stage
};

// The order that a stage's words say. If they say none, `problem` is set.
std::vector<Slot> parse_slots(std::string_view words, const PipelineShape& shape,
                              std::optional<std::string>& problem);
std::string slots_text(const std::vector<Slot>& slots, const PipelineShape& shape);

// "F3", or "F3b" if stages have several parts.
std::string slot_text(const Slot& slot, const PipelineShape& shape);

// All stages. Requires: every stage's words can be parsed.
StageOrders custom_orders(const CustomSchedule& custom, const PipelineShape& shape);

}  // namespace trainyard::schedule
