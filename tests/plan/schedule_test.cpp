#include "sim/schedule/schedule.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>

#include "sim/base/random.h"
#include "tests/support/max_plus.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

std::vector<std::vector<Slot>> built(std::string_view name, const PipelineShape& shape) {
  const ScheduleEntry* entry = find_schedule(name);
  REQUIRE(entry != nullptr);
  return build_stages(*entry, shape);
}

std::int64_t makespan(std::string_view name, const PipelineShape& shape,
                      const PipelineTimes& times) {
  return longest_path(shape, built(name, shape), times).makespan;
}

constexpr std::array<std::pair<int, int>, 4> kPassTimes = {{{1, 1}, {1, 2}, {3, 7}, {5, 4}}};

}  // namespace

TEST_CASE("every schedule of the table is valid for every shape it supports") {
  int shapes = 0;
  for (const ScheduleEntry& entry : schedules()) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 32; ++m) {
        for (int v = 1; v <= 4; ++v) {
          const PipelineShape shape = shape_of(entry, p, m, v);
          if (entry.unsupported(shape)) continue;
          ++shapes;
          CAPTURE(entry.name);
          CAPTURE(p);
          CAPTURE(m);
          CAPTURE(v);
          CHECK(check_schedule(shape, build_stages(entry, shape)).value_or("valid") == "valid");
        }
      }
    }
  }
  // 7 schedules of one chunk, breadth first with 4 chunk numbers, 3 in a V, DualPipeV from 2p
  // micro-batches on, PipeDream-2BW from p on, Chimera with even numbers, DualPipe with even
  // numbers from 2p on, and interleaved with 4 chunk numbers for the multiples of p up to 32.
  CHECK(shapes == (7 + 4 + 3) * 8 * 32 + (8 * 33 - 2 * 36) + (8 * 33 - 36) + 4 * 16 +
                      (15 + 13 + 11 + 9) + 4 * (32 + 16 + 10 + 8 + 6 + 5 + 4 + 4));
}

// m useful passes and p - 1 of bubble.
TEST_CASE("GPipe and 1F1B take (m + p - 1)(F + B)") {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      for (const auto& [f, b] : kPassTimes) {
        CHECK(makespan("gpipe", {p, m}, equal_stages(f, b)) == (m + p - 1) * (f + b));
        CHECK(makespan("1f1b", {p, m}, equal_stages(f, b)) == (m + p - 1) * (f + b));
      }
    }
  }
}

TEST_CASE("GPipe of unequal stages takes sum F + (m-1) max F + sum B + (m-1) max B") {
  SplitMix64 random(39);
  for (int trial = 0; trial < 2000; ++trial) {
    const int p = 1 + static_cast<int>(random.below(8));
    const int m = 1 + static_cast<int>(random.below(32));
    std::vector<std::array<std::int64_t, 2>> time(static_cast<std::size_t>(p));
    std::array<std::int64_t, 2> sum = {0, 0}, most = {0, 0};
    for (auto& stage : time) {
      for (std::size_t pass : {0, 1}) {
        stage[pass] = 1 + static_cast<std::int64_t>(random.below(30));
        sum[pass] += stage[pass];
        most[pass] = std::max(most[pass], stage[pass]);
      }
    }
    const PipelineTimes times = {[&](int stage, Pass pass) {
      return time[static_cast<std::size_t>(stage)][pass == Pass::forward ? 0 : 1];
    }};
    CHECK(makespan("gpipe", {p, m}, times) ==
          sum[0] + (m - 1) * most[0] + sum[1] + (m - 1) * most[1]);
    CHECK(makespan("sequential", {p, m}, times) == m * (sum[0] + sum[1]));
  }
}

// Each of the p - 1 boundaries is crossed once in the fill and once in the drain. 1F1B also waits
// for gradients in between: p - 1 of every p micro-batches add a round trip of 2C.
TEST_CASE("a hop of latency C costs GPipe 2(p-1)C and 1F1B more") {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      for (const auto& [f, b] : kPassTimes) {
        for (int c : {1, 2, 5}) {
          CAPTURE(p);
          CAPTURE(m);
          CAPTURE(c);
          const std::int64_t free_of_latency = (m + p - 1) * (f + b);
          const PipelineTimes times = equal_stages(f, b, c);
          CHECK(makespan("gpipe", {p, m}, times) == free_of_latency + 2 * (p - 1) * c);
          CHECK(makespan("sequential", {p, m}, times) == m * (p * (f + b) + 2 * (p - 1) * c));
          if (m >= p && p >= 2)
            CHECK(makespan("1f1b", {p, m}, times) ==
                  free_of_latency + 2 * c * (m + p - 3 - (m - 2) / p));
        }
      }
    }
  }
}

TEST_CASE("interleaved 1F1B takes (m v + p - 1)(F + B)") {
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 32; m += p) {
      for (int v = 1; v <= 4; ++v) {
        for (const auto& [f, b] : kPassTimes) {
          CAPTURE(p);
          CAPTURE(m);
          CAPTURE(v);
          CHECK(makespan("interleaved_1f1b", {p, m, v}, equal_stages(f, b)) ==
                (m * v + p - 1) * (f + b));
        }
      }
    }
  }
}

// w forwards on the last stage before its first pair, as many backwards after its last, and the way
// to it and back.
TEST_CASE("paired, 1F1B takes (p + w - 1)(F + B) and m v - w pairs") {
  int shapes = 0;
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 32; m += p) {
      for (int v = 1; v <= 4; ++v) {
        if (v == 1 && p > 1) continue;
        const PipelineShape shape{.stages = p, .microbatches = m, .chunks = v, .paired = true};
        const char* name = v == 1 ? "1f1b" : "interleaved_1f1b";
        const int before = std::min((v - 1) * p + 1, m * v);
        const auto stages = built(name, shape);
        REQUIRE(check_schedule(shape, stages).value_or("valid") == "valid");
        for (const auto& [f, b] : kPassTimes) {
          for (const int pair : {std::max(f, b + 1), f + b + 1}) {
            CAPTURE(p);
            CAPTURE(m);
            CAPTURE(v);
            CHECK(makespan(name, shape, equal_halves(f, b, 1, 0, pair)) ==
                  (p + before - 1) * (f + b + 1) + (m * v - before) * pair);
          }
        }
        ++shapes;
        for (int s = 0; s < p; ++s)
          CHECK(most_in_flight(stages[static_cast<std::size_t>(s)]) ==
                std::min(2 * (p - s - 1) + (v - 1) * p + 2, m * v));
      }
    }
  }
  CHECK(shapes == 32 + 3 * (32 + 16 + 10 + 8 + 6 + 5 + 4 + 4));
}

TEST_CASE("stages hold m micro-batches under GPipe, min(p-s, m) under 1F1B, one if sequential") {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      const auto all = built("gpipe", {p, m});
      const auto alternating = built("1f1b", {p, m});
      const auto single = built("sequential", {p, m});
      for (int s = 0; s < p; ++s) {
        const auto at = static_cast<std::size_t>(s);
        CHECK(most_in_flight(all[at]) == m);
        CHECK(most_in_flight(alternating[at]) == std::min(p - s, m));
        CHECK(most_in_flight(single[at]) == 1);
      }
      if (m % p != 0) continue;
      for (int v = 1; v <= 4; ++v) {
        const auto interleaved = built("interleaved_1f1b", {p, m, v});
        for (int s = 0; s < p; ++s)
          CHECK(most_in_flight(interleaved[static_cast<std::size_t>(s)]) ==
                std::min(2 * (p - s - 1) + (v - 1) * p + 1, m * v));
      }
    }
  }
}

TEST_CASE("one stage has no bubble under any schedule") {
  for (const ScheduleEntry& entry : schedules()) {
    for (int m = 1; m <= 32; ++m) {
      for (int v = 1; v <= 4; ++v) {
        const PipelineShape shape = shape_of(entry, 1, m, v);
        if (entry.unsupported(shape)) continue;
        CHECK(makespan(entry.name, shape, equal_halves(3, 4, 3, 5)) == m * v * (3 + 7));
      }
    }
  }
}

// A stage cannot start before its first input has come down to it, and after its last backward the
// gradient still has to go up: sum_{j<s} F_j + m(F_s + B_s) + sum_{j<s} B_j.
TEST_CASE("no schedule beats the work of a stage and the way to it") {
  SplitMix64 random(45);
  for (int trial = 0; trial < 200; ++trial) {
    const int p = 1 + static_cast<int>(random.below(8));
    const int m = 1 + static_cast<int>(random.below(24));
    std::vector<std::array<std::int64_t, 2>> time(static_cast<std::size_t>(p));
    for (auto& stage : time)
      for (std::int64_t& pass : stage)
        pass = 1 + static_cast<std::int64_t>(random.below(30));
    std::int64_t bound = 0, before = 0;
    for (const auto& [f, b] : time) {
      bound = std::max(bound, before + m * (f + b));
      before += f + b;
    }
    const PipelineTimes times = {[&](int stage, Pass pass) {
      return time[static_cast<std::size_t>(stage)][pass == Pass::forward ? 0 : 1];
    }};
    for (std::string_view name : {"gpipe", "1f1b", "sequential"})
      CHECK(makespan(name, {p, m}, times) >= bound);
  }
}

// Not proven, so a statistic.
TEST_CASE("1F1B of unequal stages takes no longer than GPipe without communication") {
  SplitMix64 random(46);
  int shorter = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const int p = 2 + static_cast<int>(random.below(6));
    const int m = 1 + static_cast<int>(random.below(20));
    std::vector<std::array<std::int64_t, 2>> time(static_cast<std::size_t>(p));
    for (auto& stage : time)
      for (std::int64_t& pass : stage)
        pass = 1 + static_cast<std::int64_t>(random.below(30));
    const PipelineTimes times = {[&](int stage, Pass pass) {
      return time[static_cast<std::size_t>(stage)][pass == Pass::forward ? 0 : 1];
    }};
    const std::int64_t alternating = makespan("1f1b", {p, m}, times);
    const std::int64_t flushing = makespan("gpipe", {p, m}, times);
    CHECK(alternating <= flushing);
    shorter += alternating < flushing ? 1 : 0;
  }
  CHECK(shorter > 500);
}

TEST_CASE("the order of 1F1B and of interleaved 1F1B, slot by slot") {
  const auto F = [](int i, int chunk = 0) { return Slot{Pass::forward, i, chunk}; };
  const auto B = [](int i, int chunk = 0) { return Slot{Pass::backward, i, chunk}; };
  CHECK(built("1f1b", {3, 4})[1] ==
        std::vector<Slot>{F(0), F(1), B(0), F(2), B(1), F(3), B(2), B(3)});
  // Two stages, two chunks, four micro-batches: groups (0, 1) and (2, 3); the last stage warms up
  // with (v - 1) p = 2 forwards, and backward starts with the last chunk.
  CHECK(built("interleaved_1f1b", {2, 4, 2})[1] ==
        std::vector<Slot>{F(0, 0), F(1, 0), F(0, 1), B(0, 1), F(1, 1), B(1, 1), F(2, 0), B(0, 0),
                          F(3, 0), B(1, 0), F(2, 1), B(2, 1), F(3, 1), B(3, 1), B(2, 0), B(3, 0)});
}

TEST_CASE("a schedule is found under both spellings of its name") {
  CHECK(find_schedule("interleaved_1f1b") != nullptr);
  CHECK(find_schedule("interleaved-1f1b") == find_schedule("interleaved_1f1b"));
  CHECK(find_schedule("1F1B") == nullptr);
  CHECK(find_schedule("") == nullptr);
}

TEST_CASE("a refused shape is told its rule") {
  const auto why = [](std::string_view name, const PipelineShape& shape) {
    return find_schedule(name)->unsupported(shape).value_or("supported");
  };
  CHECK(why("1f1b", {4, 8, 2}) == "this schedule has 1 chunk per stage, got 2");
  CHECK(why("gpipe", {0, 8, 1}) == "a pipeline has at least 1 stage, got 0");
  CHECK(why("sequential", {4, 0, 1}) == "a step has at least 1 micro-batch, got 0");
  CHECK(why("interleaved_1f1b", {4, 8, 0}) == "a stage has at least 1 chunk, got 0");
  CHECK(why("interleaved_1f1b", {4, 10, 2}) ==
        "interleaved_1f1b needs a number of micro-batches that is a multiple of the 4 stages, got "
        "10");
  CHECK(why("interleaved_1f1b", {4, 10, 2, 3}) ==
        "interleaved_1f1b needs groups of at least 4 micro-batches (one per stage), got groups of "
        "3");
  CHECK(why("interleaved_1f1b", {4, 10, 2, 7}) ==
        "interleaved_1f1b in groups of 7 micro-batches needs a last group of at least 4 (one per "
        "stage), got 10 micro-batches, whose last group has 3");
  CHECK(why("interleaved_1f1b", {4, 10, 2, 11}) ==
        "interleaved_1f1b needs at least one whole group of 11 micro-batches, got 10");
  CHECK(why("interleaved_1f1b", {4, 10, 2, 6}) == "supported");
  CHECK(why("interleaved_1f1b", {4, 10, 2, 5}) == "supported");
  const PipelineShape paired{.stages = 2, .microbatches = 4, .paired = true};
  CHECK(why("1f1b", paired) == "passes of 2 stages with 1 chunk each cannot overlap");
  CHECK(why("interleaved_1f1b", paired) == why("1f1b", paired));
  for (const ScheduleEntry& entry : schedules()) {
    PipelineShape own = shape_of(entry, 1, 4, entry.chunks);
    own.paired = true;
    CAPTURE(entry.name);
    if (!entry.pairs) CHECK(entry.unsupported(own).has_value());
    if (entry.pairs) CHECK_FALSE(entry.unsupported(own).has_value());
  }
}

TEST_CASE("interleaved 1F1B ends for every group that the rule accepts") {
  for (int p = 2; p <= 6; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = 1; m < 4 * p; ++m) {
        for (int group = p; group <= m; ++group) {
          PipelineShape shape = {p, m, v, group};
          shape.paired = (m + group) % 2 == 0;
          if (interleaved_unsupported(shape)) continue;
          CAPTURE(p);
          CAPTURE(v);
          CAPTURE(m);
          CAPTURE(group);
          const auto stages = built("interleaved_1f1b", shape);
          CHECK(check_schedule(shape, stages).value_or("valid") == "valid");
        }
      }
    }
  }
}

// The rule is worth its refusals: without it 27 of these 120 shapes would never end.
TEST_CASE("interleaved 1F1B without its rule deadlocks") {
  int shapes = 0, deadlocks = 0;
  for (int p = 2; p <= 6; ++p) {
    for (int v = 2; v <= 3; ++v) {
      for (int m = 1; m < 4 * p; ++m) {
        if (m % p == 0) continue;
        const PipelineShape shape = {p, m, v};
        CHECK(interleaved_unsupported(shape));
        std::vector<std::vector<Slot>> stages;
        for (int s = 0; s < p; ++s)
          stages.push_back(interleaved_one_f_one_b(shape, s));
        ++shapes;
        deadlocks += check_schedule(shape, stages) ? 1 : 0;
      }
    }
  }
  CHECK(shapes == 120);
  CHECK(deadlocks == 27);
}

// Four stages, three chunks, five micro-batches in groups of four: the last group has only one.
TEST_CASE("a cycle among the stages is named") {
  const PipelineShape shape = {4, 5, 3};
  std::vector<std::vector<Slot>> stages;
  for (int s = 0; s < 4; ++s)
    stages.push_back(interleaved_one_f_one_b(shape, s));
  const std::string wrong = check_schedule(shape, stages).value_or("valid");
  CHECK(wrong ==
        "the stages wait for each other; stage 0 is at F4 of chunk 2 and needs F4 of chunk 1 of "
        "stage 3; stage 3 is at B0 of chunk 1 and needs B0 of chunk 2 of stage 0");
}

TEST_CASE("a wrong order is told what is wrong with it") {
  const PipelineShape shape = {2, 2};
  const auto with = [&](auto change) {
    auto stages = built("gpipe", shape);
    change(stages);
    return check_schedule(shape, stages).value_or("valid");
  };
  using Stages = std::vector<std::vector<Slot>>;
  CHECK(with([](Stages&) {}) == "valid");
  CHECK(with([](Stages& s) { s[1].pop_back(); }) == "stage 1: B1 is missing");
  CHECK(with([](Stages& s) {
          s[0].erase(s[0].begin());
          s[0].pop_back();
          s[0].pop_back();
        }) == "stage 0: F0 is missing");
  CHECK(with([](Stages& s) { s[0].push_back(s[0].front()); }) == "stage 0: F0 occurs twice");
  CHECK(with([](Stages& s) { std::swap(s[1][0], s[1][2]); }) ==
        "stage 1: B0 comes before its forward");
  CHECK(with([](Stages& s) { s[1][0].microbatch = 2; }) ==
        "stage 1: micro-batch 2 is not one of 2");
  CHECK(with([](Stages& s) { s[1][0].chunk = 1; }) == "stage 1: chunk 1 is not one of 1");
  CHECK(with([](Stages& s) { s.pop_back(); }) == "1 orders for 2 stages");
  CHECK(with([](Stages& s) { s[0][2].pass = Pass::backward_input; }) ==
        "stage 0: B0 is neither whole nor two halves");
  CHECK(with([](Stages& s) {
          s[0][2].pass = Pass::backward_input;
          s[0].push_back({Pass::backward_weight, 0, 0});
        }) == "valid");
  CHECK(with([](Stages& s) { s[0][2].pass = Pass::backward_weight; }) ==
        "stage 0: W0 comes before the gradient of its input");
  CHECK(
      with([](Stages& s) {
        s[0] = {{Pass::forward, 0, 0},
                {Pass::backward, 0, 0},
                {Pass::forward, 1, 0},
                {Pass::backward, 1, 0}};
        s[1] = {{Pass::forward, 0, 0},
                {Pass::forward, 1, 0},
                {Pass::backward, 0, 0},
                {Pass::backward, 1, 0}};
      }) ==
      "the stages wait for each other; stage 0 is at B0 and needs B0 of stage 1; stage 1 is at F1 "
      "and needs F1 of stage 0");
}

TEST_CASE("asynchronous schedules keep versions of the weights") {
  const ScheduleEntry& every = *find_schedule("pipedream");
  const ScheduleEntry& buffered = *find_schedule("pipedream_2bw");
  const PipelineShape shape = shape_of(every, 4, 8);
  for (int stage = 0; stage < 4; ++stage) {
    CHECK(weight_versions(every, shape, stage) == 4 - stage);
    CHECK(weight_versions(buffered, shape, stage) == 2);
    CHECK(weight_versions(*find_schedule("1f1b"), shape, stage) == 1);
  }
  CHECK(weight_versions(buffered, shape_of(buffered, 1, 8), 0) == 1);
}

namespace {

// The example of CONTRIBUTING.md.
std::vector<Slot> eager_first(const PipelineShape& shape, int stage) {
  return stage == 0 ? gpipe(shape, stage) : one_f_one_b(shape, stage);
}

// What a slip would make of it: the last stage runs its forwards in the opposite order of its
// backwards, and the stage before waits for the first of them.
std::vector<Slot> slipped(const PipelineShape& shape, int stage) {
  std::vector<Slot> slots = one_f_one_b(shape, stage);
  if (stage + 1 == shape.stages)
    for (Slot& slot : slots)
      slot.microbatch = shape.microbatches - 1 - slot.microbatch;
  return slots;
}

StageOrders by_stage(std::vector<Slot> (*order)(const PipelineShape&, int),
                     const PipelineShape& shape) {
  StageOrders stages;
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(order(shape, stage));
  return stages;
}

}  // namespace

TEST_CASE("the example of how to add a schedule is valid and takes what it says") {
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 12; ++m) {
      const PipelineShape shape = {p, m};
      const StageOrders stages = by_stage(eager_first, shape);
      CHECK(check_schedule(shape, stages).value_or("valid") == "valid");
      CHECK(longest_path(shape, stages, equal_stages(3, 7)).makespan == (m + p - 1) * 10);
      CHECK(most_in_flight(stages[0]) == m);
    }
  }
}

TEST_CASE("the generic checks find a schedule that is wrong in one place") {
  const PipelineShape shape = {3, 6};
  CHECK(check_schedule(shape, by_stage(slipped, shape)).value_or("valid") ==
        "the stages wait for each other; stage 1 is at B0 and needs B0 of stage 2; stage 2 is at "
        "F5 and needs F5 of stage 1");
  // Every single slot that is left out, doubled or moved to the front is found, or harmless.
  const StageOrders good = by_stage(one_f_one_b, shape);
  int found = 0, harmless = 0;
  for (std::size_t stage = 0; stage < good.size(); ++stage) {
    for (std::size_t i = 0; i < good[stage].size(); ++i) {
      StageOrders left_out = good, doubled = good, moved = good;
      left_out[stage].erase(left_out[stage].begin() + static_cast<std::ptrdiff_t>(i));
      doubled[stage].push_back(good[stage][i]);
      std::rotate(moved[stage].begin(), moved[stage].begin() + static_cast<std::ptrdiff_t>(i),
                  moved[stage].begin() + static_cast<std::ptrdiff_t>(i) + 1);
      CHECK(check_schedule(shape, left_out));
      CHECK(check_schedule(shape, doubled));
      (check_schedule(shape, moved) ? found : harmless) += 1;
    }
  }
  CHECK(found > 0);
  CHECK(harmless > 0);
}
