// Schedules that run the network from both ends, or folded: DualPipe, DualPipeV, Chimera; and the
// breadth-first one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/order_timing.h"
#include "tests/support/max_plus.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

StageOrders built(std::string_view name, const PipelineShape& shape) {
  return build_stages(*find_schedule(name), shape);
}
PipelineShape shape_of(std::string_view name, int p, int m, int v = 0) {
  return trainyard::shape_of(*find_schedule(name), p, m, v);
}

// "F0 F4' B1+..." : a prime is the other copy, a letter the chunk of a V.
std::string text(const PipelineShape& shape, const std::vector<Slot>& slots) {
  std::string words;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    words += fmt::format("{}{}{}{}", letter(slots[i].pass), slots[i].microbatch,
                         slots[i].direction == 1 ? "'" : "",
                         shape.chunks == 1     ? ""
                         : slots[i].chunk == 0 ? "a"
                                               : "b");
    words += slots[i].paired ? "+" : i + 1 == slots.size() ? "" : " ";
  }
  return words;
}

// Of the stage that waits most, from its first pass to its last.
std::int64_t idle(const PipelineShape& shape, const StageOrders& stages,
                  const PipelineTimes& times) {
  const PipelineRun run = longest_path(shape, stages, times);
  std::int64_t most = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::int64_t busy = 0;
    for (std::size_t i = 0; i < stages[s].size(); i += stages[s][i].paired ? 2U : 1U)
      busy += run.ends[s][i] - run.begins[s][i];
    most = std::max(most, run.makespan - busy);
  }
  return most;
}

}  // namespace

TEST_CASE("DualPipe's order is the eight steps, rank by rank") {
  const PipelineShape shape = shape_of("dualpipe", 4, 8);
  const StageOrders stages = built("dualpipe", shape);
  // r = 0, h = 2, four micro-batches per direction.
  CHECK(text(shape, stages[0]) ==
        "F0 F1 "          // 1
        "F2 F4' "         // 2
        "I4' W4' F5' "    // 3
        "F3+B5' F6'+B0 "  // 4
        "B6' F7'+B1 "     // 5
        "B7' I2 "         // 6: r is even, so the middle is between the two
        "W2 I3 "          // 7
        "W3");            // 8
  // r = 1: the innermost, whose first pair does not overlap.
  CHECK(text(shape, stages[1]) ==
        "F0 F4' F1 F5' "                // 2
        "F2 B4' F6'+B0 F3+B5' F7'+B1 "  // 4
        "B6' B2 I7' I3 "                // 6
        "W7' W3");                      // 8
  // The other half mirrors them.
  CHECK(text(shape, stages[2]) == "F4' F0 F5' F1 F6' B0 F2+B4' F7'+B1 F3+B5' B2 B6' I3 I7' W3 W7'");
}

TEST_CASE("DualPipeV's order is the same with chunks for directions") {
  const PipelineShape shape = shape_of("dualpipe_v", 2, 4);
  const StageOrders stages = built("dualpipe_v", shape);
  CHECK(text(shape, stages[0]) ==
        "F0a F1a F2a F0b I0b W0b F1b F3a+B1b F2b+B0a B2b F3b+B1a B3b I2a W2a I3a W3a");
  CHECK(text(shape, stages[1]) ==
        "F0a F0b F1a F1b F2a B0b F2b+B0a F3a+B1b F3b+B1a B2b B2a I3b I3a W3b W3a");
}

// FB is the time of an overlapped pair. Exact where forward and input gradient take equally
// long, the weight gradient no longer, and a pair between its backward alone and both passes one by
// one.
TEST_CASE("DualPipe's bubble is (p/2 - 1)(FB + B - 3W), DualPipeV's (p - 1)(FB + B - 3W)") {
  for (int h = 1; h <= 4; ++h) {
    for (int m = 4 * h; m <= 6 * h + 2; m += 2) {
      const PipelineShape both = shape_of("dualpipe", 2 * h, m);
      const PipelineShape folded = shape_of("dualpipe_v", h, m);
      const StageOrders two_copies = built("dualpipe", both);
      const StageOrders one_copy = built("dualpipe_v", folded);
      for (int f = 1; f <= 4; ++f) {
        for (int w = 1; w <= f; ++w) {
          for (int pair = f + w; pair <= 2 * f + w; ++pair) {
            CAPTURE(h);
            CAPTURE(m);
            CAPTURE(f);
            CAPTURE(w);
            CAPTURE(pair);
            const PipelineTimes times = equal_halves(f, f, w, 0, pair);
            const std::int64_t bubble = (h - 1) * (pair + (f + w) - 3 * w);
            CHECK(idle(both, two_copies, times) == bubble);
            CHECK(idle(folded, one_copy, times) == bubble);
          }
        }
      }
    }
  }
}

TEST_CASE("outside that domain DualPipe waits longer than the formula") {
  const PipelineShape shape = shape_of("dualpipe", 8, 16);
  const StageOrders stages = built("dualpipe", shape);
  CHECK(idle(shape, stages, equal_halves(2, 2, 1, 0, 7)) > 3 * (7 + 3 - 3));
  CHECK(idle(shape, stages, equal_halves(2, 2, 1, 0, 2)) > 3 * (2 + 3 - 3));
}

TEST_CASE("DualPipe holds at most p + 1 micro-batches on a stage") {
  for (int h = 1; h <= 5; ++h) {
    const PipelineShape shape = shape_of("dualpipe", 2 * h, 8 * h);
    for (const std::vector<Slot>& slots : built("dualpipe", shape))
      CHECK(most_in_flight(slots) <= 2 * h + 1);
  }
}

TEST_CASE("Chimera takes 2m + p - 2 passes of F = B = 1, and at most p micro-batches in flight") {
  for (int p = 2; p <= 10; p += 2) {
    for (int units = 1; units <= 4; ++units) {
      const int m = units * p;
      const PipelineShape shape = shape_of("chimera", p, m);
      const StageOrders stages = built("chimera", shape);
      CAPTURE(p);
      CAPTURE(m);
      CHECK(longest_path(shape, stages, equal_stages(1, 1)).makespan == 2 * m + p - 2);
      for (const std::vector<Slot>& slots : stages)
        CHECK(most_in_flight(slots) <= p);
    }
  }
}

TEST_CASE("Chimera's first unit on four stages, as the paper draws it") {
  const PipelineShape shape = shape_of("chimera", 4, 4);
  const StageOrders stages = built("chimera", shape);
  CHECK(text(shape, stages[0]) == "F0 F1 F2' B2' F3' B3' B0 B1");
  CHECK(text(shape, stages[1]) == "F0 F2' F1 F3' B2' B0 B3' B1");
  CHECK(text(shape, stages[3]) == "F2' F3' F0 B0 F1 B1 B2' B3'");
}

TEST_CASE("breadth first takes ((v-1) max(m, p) + m + p - 1)(F + B) and keeps everything") {
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 12; ++m) {
      for (int v = 1; v <= 3; ++v) {
        const PipelineShape shape = shape_of("breadth_first", p, m, v);
        const StageOrders stages = built("breadth_first", shape);
        CAPTURE(p);
        CAPTURE(m);
        CAPTURE(v);
        CHECK(longest_path(shape, stages, equal_stages(3, 7)).makespan ==
              ((v - 1) * std::max(m, p) + m + p - 1) * 10);
        CHECK(most_in_flight(stages[0]) == m * v);
      }
    }
  }
}
