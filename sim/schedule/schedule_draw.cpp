// Orders as text that a person can compare with the figures of papers.
#include <fmt/format.h>

#include "sim/base/check.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/custom_schedule.h"
#include "sim/schedule/order_timing.h"
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
char letter(Pass pass) {
  switch (pass) {
    case Pass::forward: return 'F';
    case Pass::backward: return 'B';
    case Pass::backward_input: return 'I';
    case Pass::backward_weight: return 'W';
  }
  return '?';
}

std::string draw(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                 const PassTimes& times) {
  TRAINYARD_CHECK(parts(shape) <= 26, "{} parts have no letters", parts(shape));
  const auto wrong = check_schedule(shape, stages);
  TRAINYARD_CHECK(!wrong, "{}", *wrong);
  const OrderRun run = run_orders(shape, stages, uniform_times(shape, times));
  const std::size_t digits = fmt::formatted_size("{}", shape.microbatches - 1);
  const std::size_t cell = 1 + digits + (parts(shape) > 1 ? 1 : 0);
  const std::size_t margin = fmt::formatted_size("stage {}", shape.stages - 1);

  std::string drawing;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const std::vector<Slot>& slots = stages[stage];
    std::string row(static_cast<std::size_t>(run.makespan().count()) * cell, '.');
    for (std::size_t i = 0; i < slots.size(); i += slots[i].paired ? 2U : 1U) {
      std::string text = slot_text(slots[i], shape);
      if (slots[i].paired) text += "+" + slot_text(slots[i + 1], shape);
      const auto from = static_cast<std::size_t>(run.begins[stage][i].count()) * cell;
      const auto to = static_cast<std::size_t>(run.ends[stage][i].count()) * cell;
      text.resize(to - from, '-');
      row.replace(from, to - from, text);
    }
    drawing += fmt::format("{:<{}} {}\n", fmt::format("stage {}", stage), margin, row);
  }
  return drawing;
}

}  // namespace trainyard::schedule
