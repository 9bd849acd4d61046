// Chimera: two pipelines of the same stages in opposite directions, which fill each other's
// bubbles.
//
//   time (equal stages, F = B = 1, no communication, m a multiple of p) = 2m + p - 2
//   micro-batches that live at once on a stage: at most p
//
// Micro-batches go in units of p, the first half of a unit down the stages, the second up; each is
// 1F1B of its own. In time steps of one pass, on stage s of its direction, the i-th of a half runs
// forward at step s + 2i and backward at step 2p - 1 - s + 2i. Those of the two directions never
// fall on the same step (p is even), and the steps of a unit fit between those of the units before
// and after it, 2p later.
//
// Source: Li and Hoefler, Chimera: Efficiently Training Large-Scale Neural Networks with
// Bidirectional Pipelines, SC 2021, 3.1 and 3.3 (direct concatenation).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

std::vector<Slot> chimera(const PipelineShape& shape, int stage) {
  const int p = shape.stages;
  std::vector<std::pair<int, Slot>> steps;
  for (int first = 0; first < shape.microbatches; first += p) {
    const int unit = first / p;
    const int half = std::min(p, shape.microbatches - first) / 2;
    for (std::uint8_t direction = 0; direction < 2; ++direction) {
      const int at = direction == 0 ? stage : p - 1 - stage;
      for (int i = 0; i < half; ++i) {
        const int microbatch = first + direction * half + i;
        const int base = 2 * p * unit + 2 * i;
        steps.push_back({base + at, {Pass::forward, microbatch, 0, direction}});
        steps.push_back({base + 2 * p - 1 - at, {Pass::backward, microbatch, 0, direction}});
      }
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Slot> slots;
  for (const auto& [step, slot] : steps)
    slots.push_back(slot);
  return slots;
}

std::optional<std::string> chimera_unsupported(const PipelineShape& shape) {
  if (shape.stages % 2 != 0)
    return fmt::format("chimera needs an even number of stages, got {}", shape.stages);
  if (shape.microbatches % 2 != 0)
    return fmt::format("chimera needs an even number of micro-batches, got {}", shape.microbatches);
  return std::nullopt;
}

}  // namespace trainyard::schedule
