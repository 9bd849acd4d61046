// Golden timelines: what a person compares with the figures of the papers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>

#include "sim/schedule/chunk_placement.h"
#include "tests/support/golden.h"
#include "tests/support/max_plus.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

TEST_CASE("drawings of all schedules, p = 4, m = 8, F = I = W = 1 tick") {
  struct Case {
    std::string_view name;
    int chunks;
    std::string_view derivation;
    int ticks;
  };
  const std::array<Case, 16> cases = {{
      {"gpipe", 1, "(m + p - 1)(F + B) = 11 x 3", 33},
      {"1f1b", 1, "(m + p - 1)(F + B) = 11 x 3", 33},
      {"interleaved_1f1b", 2, "(m v + p - 1)(F + B) = 19 x 3, of half the layers each", 57},
      {"breadth_first", 2, "((v - 1) m + m + p - 1)(F + B) = 19 x 3, of half the layers each", 57},
      {"pipedream", 1, "as 1f1b; the next step's micro-batches fill the end", 33},
      {"pipedream_2bw", 1, "as 1f1b; the next step's micro-batches fill the end", 33},
      {"sequential", 1, "m p (F + B) = 32 x 3", 96},
      {"zb_h1", 1, "m (F + I + W) + (p - 1)(F + I - W) = 8 x 3 + 3", 27},
      {"zb_h2", 1, "m (F + I + W) + (p - 1) F = 8 x 3 + 3, no stage idle after its start", 27},
      {"zb_auto", 1, "as zb_h2, without a memory limit", 27},
      {"zb_v", 2, "6m + p - 1 = 48 + 3, no stage idle after its start", 51},
      {"v_half", 2, "6m + 3p - 5 = 48 + 7", 55},
      {"v_min", 2, "6m + 4p - 5 = 48 + 11", 59},
      {"chimera", 1, "the longest path", 30},
      {"dualpipe", 1, "m (F + B) + (p/2 - 1)(FB + B - 3W) = 24 + 2", 26},
      {"dualpipe_v", 2, "2m (F + B) + (p - 1)(FB + B - 3W) = 48 + 6", 54},
  }};
  CHECK(cases.size() == schedules().size());
  for (const Case& at : cases) {
    CAPTURE(at.name);
    const ScheduleEntry& entry = *find_schedule(at.name);
    const PipelineShape shape = shape_of(entry, 4, 8, at.chunks);
    const StageOrders stages = build_stages(entry, shape);
    CHECK(longest_path(shape, stages, equal_halves(1, 1, 1)).makespan == at.ticks);
    const std::string drawing = draw(shape, stages);
    const std::string text = fmt::format(
        "{}, p = 4 stages, m = 8 micro-batches, v = {}, F = 1 tick, B = 2 ticks\n"
        "ticks = {} = {}\n\n{}",
        at.name, at.chunks, at.derivation, at.ticks, drawing);
    CHECK(golden(fmt::format("schedules/{}.txt", at.name), text) == text);
    const std::size_t cell = parts(shape) > 1 ? 3 : 2;
    CHECK(drawing.find('\n') ==
          std::string("stage 0 ").size() + static_cast<std::size_t>(at.ticks) * cell);
  }
}
