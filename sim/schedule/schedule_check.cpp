// What every valid order has in common, whoever wrote it.
#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/order_timing.h"
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
namespace {

// How often each pass of one stage occurs, by micro-batch and chunk.
class Tally {
 public:
  explicit Tally(const PipelineShape& shape)
      : microbatches_(shape.microbatches),
        seen_(4 * static_cast<std::size_t>(shape.microbatches) *
              static_cast<std::size_t>(shape.chunks)) {}
  char& at(Pass pass, int microbatch, int chunk) {
    return seen_[4 * static_cast<std::size_t>(chunk * microbatches_ + microbatch) +
                 static_cast<std::size_t>(pass)];
  }

 private:
  int microbatches_;
  std::vector<char> seen_;
};

// The words for a slot that cannot be, nullopt if it can.
std::optional<std::string> check_names(const PipelineShape& shape, const Slot& slot) {
  if (slot.microbatch < 0 || slot.microbatch >= shape.microbatches)
    return fmt::format("micro-batch {} is not one of {}", slot.microbatch, shape.microbatches);
  if (slot.chunk < 0 || slot.chunk >= shape.chunks)
    return fmt::format("chunk {} is not one of {}", slot.chunk, shape.chunks);
  if (slot.direction >= directions(shape))
    return fmt::format("copy {} is not one of {}", slot.direction, directions(shape));
  return std::nullopt;
}

// A pair is a forward with the whole backward of another micro-batch right after it.
bool is_pair(const std::vector<Slot>& slots, std::size_t at) {
  return slots[at].pass == Pass::forward && at + 1 < slots.size() && !slots[at + 1].paired &&
         slots[at + 1].pass == Pass::backward && slots[at + 1].microbatch != slots[at].microbatch;
}

// Which copy of the network each micro-batch goes through: that of its first slot anywhere.
std::vector<std::uint8_t> copies(const PipelineShape& shape,
                                 std::span<const std::vector<Slot>> stages) {
  constexpr std::uint8_t kUnknown = 0xFF;
  std::vector<std::uint8_t> copy(static_cast<std::size_t>(shape.microbatches), kUnknown);
  for (const std::vector<Slot>& slots : stages) {
    for (const Slot& slot : slots) {
      if (check_names(shape, slot)) continue;
      std::uint8_t& known = copy[static_cast<std::size_t>(slot.microbatch)];
      if (known == kUnknown) known = slot.direction;
    }
  }
  for (std::uint8_t& each : copy)
    if (each == kUnknown) each = 0;
  return copy;
}

// Each pass once, and after what it needs of its own stage.
std::optional<std::string> check_stage(const PipelineShape& shape, const std::vector<Slot>& slots,
                                       const std::vector<std::uint8_t>& copy) {
  Tally tally(shape);
  const auto seen = [&](Pass pass, const Slot& of) -> char& {
    return tally.at(pass, of.microbatch, of.chunk);
  };
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (auto why = check_names(shape, slot)) return why;
    const std::string what = describe(shape, slot);
    if (slot.direction != copy[static_cast<std::size_t>(slot.microbatch)])
      return fmt::format("{}, but its micro-batch goes through the other copy elsewhere", what);
    if (seen(slot.pass, slot)) return fmt::format("{} occurs twice", what);
    seen(slot.pass, slot) = 1;
    if (gives_gradient(slot.pass) && !seen(Pass::forward, slot))
      return fmt::format("{} comes before its forward", what);
    if (slot.pass == Pass::backward_weight && !seen(Pass::backward_input, slot))
      return fmt::format("{} comes before the gradient of its input", what);
    if (slot.paired && !is_pair(slots, i))
      return fmt::format("{} is paired, but no whole backward of another micro-batch follows",
                         what);
  }
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    for (int i = 0; i < shape.microbatches; ++i) {
      const std::uint8_t direction = copy[static_cast<std::size_t>(i)];
      const Slot forward = {Pass::forward, i, chunk, direction};
      const Slot backward = {Pass::backward, i, chunk, direction};
      if (!seen(Pass::forward, forward))
        return fmt::format("{} is missing", describe(shape, forward));
      const int whole = seen(Pass::backward, backward);
      const int input = seen(Pass::backward_input, backward);
      const int weight = seen(Pass::backward_weight, backward);
      if (whole + input == 0) return fmt::format("{} is missing", describe(shape, backward));
      if (whole + input == 2 || input != weight)
        return fmt::format("{} is neither whole nor two halves", describe(shape, backward));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> check_schedule(const PipelineShape& shape,
                                          std::span<const std::vector<Slot>> stages) {
  if (stages.size() != static_cast<std::size_t>(shape.stages))
    return fmt::format("{} orders for {} stages", stages.size(), shape.stages);
  const std::vector<std::uint8_t> copy = copies(shape, stages);
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    if (auto why = check_stage(shape, stages[stage], copy))
      return fmt::format("stage {}: {}", stage, *why);
  return run_orders(shape, stages, uniform_times(shape, kDrawingTimes)).deadlock;
}

}  // namespace trainyard::schedule
