// What holds for every schedule of the table, and closed forms on random passes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "sim/base/random.h"
#include "sim/schedule/order_timing.h"
#include "tests/support/max_plus.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

// Of each stage: forward, whole backward, and its halves, by Pass.
using StageTimes = std::vector<std::array<std::int64_t, 4>>;

std::int64_t drawn(SplitMix64& random, std::uint64_t most) {
  return 1 + static_cast<std::int64_t>(random.below(most));
}

StageTimes unequal(SplitMix64& random, int stages) {
  StageTimes times;
  for (int s = 0; s < stages; ++s) {
    const std::int64_t input = drawn(random, 20), weight = drawn(random, 20);
    times.push_back({drawn(random, 20), input + weight, input, weight});
  }
  return times;
}

PipelineTimes as_times(const StageTimes& stages, std::int64_t hop = 0) {
  return {[&stages](int stage, Pass pass) {
            return stages[static_cast<std::size_t>(stage)][static_cast<std::size_t>(pass)];
          },
          hop};
}

std::int64_t makespan(const ScheduleEntry& entry, const PipelineShape& shape,
                      const PipelineTimes& times) {
  return longest_path(shape, build_stages(entry, shape), times).makespan;
}

// By how many micro-batches a shape may grow at least, if any number is enough for it.
int step_of(const ScheduleEntry& entry, const PipelineShape& shape) {
  PipelineShape more = shape;
  do
    ++more.microbatches;
  while (entry.unsupported(more));
  return more.microbatches - shape.microbatches;
}

}  // namespace

// A static order is max-plus linear: from some m on, makespan(m + c) - makespan(m) is one number.
TEST_CASE("the makespan of every static schedule becomes periodic in the micro-batches") {
  SplitMix64 random(47);
  int checked = 0;
  for (const ScheduleEntry& entry : schedules()) {
    if (!entry.times_from.empty()) continue;
    for (int p = 2; p <= 4; ++p) {
      for (int trial = 0; trial < 3; ++trial) {
        PipelineShape shape = shape_of(entry, p, 20 * p);
        if (entry.unsupported(shape)) continue;  // two copies of the network on three stages
        const StageTimes stages = unequal(random, p);
        const PipelineTimes times = as_times(stages, drawn(random, 8) - 1);
        const int step = entry.name == "chimera" ? p : step_of(entry, shape);
        std::vector<std::int64_t> takes;
        for (int n = 0; n < 6 * p; ++n, shape.microbatches += step)
          takes.push_back(makespan(entry, shape, times));
        const std::size_t known = takes.size();
        bool periodic = false;
        for (std::size_t c = 1; c <= 2 * static_cast<std::size_t>(p) && !periodic; ++c) {
          periodic = true;
          for (std::size_t m = 0; m + c < known; ++m)
            periodic &= takes[m + c] - takes[m] == takes[known - 1] - takes[known - 1 - c];
        }
        CAPTURE(entry.name);
        CAPTURE(p);
        CAPTURE(step);
        CHECK(periodic);
        ++checked;
      }
    }
  }
  CHECK(checked == 15 * 9 - 2 * 3);
}

// Before its first pass a stage waits for the forwards of all parts before it, and after its last
// backward the gradient goes all the way back. A deferred weight gradient can fill that way.
TEST_CASE("no schedule beats any stage's work and the way to its first and from its last pass") {
  SplitMix64 random(45);
  for (const ScheduleEntry& entry : schedules()) {
    for (int trial = 0; trial < 60; ++trial) {
      const int p = 1 + static_cast<int>(random.below(6));
      const PipelineShape shape = shape_of(entry, p, 1 + static_cast<int>(random.below(20)));
      if (entry.unsupported(shape)) continue;
      const StageTimes stages = unequal(random, p);
      const StageOrders orders = build_stages(entry, shape);
      const std::int64_t takes = longest_path(shape, orders, as_times(stages)).makespan;
      std::int64_t down = 0;  // forwards, and backwards of the stages before
      std::int64_t up = 0;
      for (const auto& stage : stages)
        up += stage[0];
      for (int s = 0; s < p; ++s) {
        const auto& own = stages[static_cast<std::size_t>(s)];
        up -= own[0];
        std::int64_t busy = 0;
        for (const Slot& slot : orders[static_cast<std::size_t>(s)])
          busy += own[static_cast<std::size_t>(slot.pass)];
        // Two copies reach a stage from either end.
        CAPTURE(entry.name);
        CHECK(takes >= busy + (directions(shape) == 2 ? std::min(down, up) : down));
        down += own[0];
      }
      if (entry.placement != Placement::looped) continue;
      bool whole = true;
      for (const Slot& slot : orders[0])
        whole &= slot.pass == Pass::forward || slot.pass == Pass::backward;
      std::int64_t before = 0;
      for (int s = 0; whole && s < p; ++s) {
        const auto& own = stages[static_cast<std::size_t>(s)];
        CHECK(takes >= before + shape.microbatches * shape.chunks * (own[0] + own[1]));
        before += own[0] + own[1];
      }
    }
  }
}

TEST_CASE("the makespan of orders is the longest path through their passes") {
  SplitMix64 random(46);
  for (const ScheduleEntry& entry : schedules()) {
    for (int trial = 0; trial < 40; ++trial) {
      const int p = 1 + static_cast<int>(random.below(6));
      const PipelineShape shape = shape_of(entry, p, 1 + static_cast<int>(random.below(20)));
      if (entry.unsupported(shape)) continue;
      const StageTimes stages = unequal(random, p);
      const std::int64_t hop = drawn(random, 5) - 1;
      std::vector<schedule::PassTimes> times;
      for (const auto& stage : stages)
        for (int part = 0; part < parts(shape); ++part)
          times.push_back({.forward = Duration(stage[0]),
                           .backward_input = Duration(stage[2]),
                           .backward_weight = Duration(stage[3]),
                           .communication = Duration(hop)});
      const StageOrders orders = build_stages(entry, shape);
      CAPTURE(entry.name);
      CHECK(schedule::makespan(shape, orders, times).count() ==
            longest_path(shape, orders, as_times(stages, hop)).makespan);
    }
  }
}

TEST_CASE("the closed forms of GPipe, 1F1B and hops hold for any passes") {
  SplitMix64 random(40);
  const ScheduleEntry& flushing = *find_schedule("gpipe");
  const ScheduleEntry& alternating = *find_schedule("1f1b");
  int cases = 0;
  for (int p = 2; p <= 8; ++p) {
    for (int m = p; m <= 32; ++m) {
      for (int trial = 0; trial < 28; ++trial, ++cases) {
        const std::int64_t f = drawn(random, 30), b = drawn(random, 30);
        const std::int64_t c = drawn(random, 12) - 1;
        CAPTURE(p);
        CAPTURE(m);
        CAPTURE(c);
        const PipelineTimes times = equal_stages(f, b, c);
        CHECK(makespan(flushing, {p, m}, times) == (m + p - 1) * (f + b) + 2 * (p - 1) * c);
        CHECK(makespan(alternating, {p, m}, times) ==
              (m + p - 1) * (f + b) + 2 * c * (m + p - 3 - (m - 2) / p));
      }
    }
  }
  CHECK(cases >= 5340);
}

// (p-1)/(m+p-1) of the stages' time, in integers: p makespan - p m (F + B) over p makespan.
TEST_CASE("the bubble is (p-1)/(m+p-1) of GPipe and 1F1B, a v-th of it interleaved") {
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 32; m += p) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const std::int64_t takes = makespan(*find_schedule(name), {p, m}, equal_stages(6, 12));
        CHECK((takes - m * 18) * (m + p - 1) == (p - 1) * takes);
      }
      for (int v = 2; v <= 3; ++v) {
        // A chunk is a v-th of the stage.
        const std::int64_t takes =
            makespan(*find_schedule("interleaved_1f1b"), {p, m, v}, equal_stages(6 / v, 12 / v));
        CHECK(v * (takes - m * 18) == (p - 1) * 18);
      }
    }
  }
}

TEST_CASE("ZB-H1 takes its closed form if W <= min(F, I), and longer on p >= 2 stages if not") {
  const ScheduleEntry& entry = *find_schedule("zb_h1");
  int inside = 0, outside = 0;
  for (int p = 2; p <= 5; ++p) {
    for (int m = 2 * p; m <= 2 * p + 3; ++m) {
      const StageOrders orders = build_stages(entry, {p, m});
      for (int f = 1; f <= 5; ++f) {
        for (int i = 1; i <= 5; ++i) {
          for (int w = 1; w <= 5; ++w) {
            const std::int64_t closed = m * (f + i + w) + (p - 1) * (f + i - w);
            const std::int64_t takes = longest_path({p, m}, orders, equal_halves(f, i, w)).makespan;
            CAPTURE(p);
            CAPTURE(m);
            CAPTURE(f);
            CAPTURE(i);
            CAPTURE(w);
            if (w <= std::min(f, i)) {
              CHECK(takes == closed);
              ++inside;
            } else {
              CHECK(takes > closed);
              ++outside;
            }
          }
        }
      }
    }
  }
  CHECK(inside == 16 * 55);
  CHECK(outside == 16 * 70);
}
