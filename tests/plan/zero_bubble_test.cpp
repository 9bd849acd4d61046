// Schedules that separate the gradients of inputs (I) and weights (W), against their closed forms.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/random.h"
#include "sim/schedule/order_timing.h"
#include "tests/support/max_plus.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

PipelineShape shape_of(std::string_view name, int p, int m) {
  return trainyard::shape_of(*find_schedule(name), p, m);
}

StageOrders built(std::string_view name, int p, int m) {
  return build_stages(*find_schedule(name), shape_of(name, p, m));
}

PipelineRun timed(std::string_view name, int p, int m, const PipelineTimes& times) {
  return longest_path(shape_of(name, p, m), built(name, p, m), times);
}

int most_in_flight(const StageOrders& stages) {
  int most = 0;
  for (const std::vector<Slot>& slots : stages)
    most = std::max(most, trainyard::testing::most_in_flight(slots));
  return most;
}

struct Halves {
  std::int64_t f, i, w;
};

std::vector<Halves> all_times(int most) {
  std::vector<Halves> all;
  for (int f = 1; f <= most; ++f)
    for (int i = 1; i <= most; ++i)
      for (int w = 1; w <= most; ++w)
        all.push_back({f, i, w});
  return all;
}

}  // namespace

// The bubble is (p - 1)(F + I - W): at F = I = W a rate of (p - 1) / (3m + p - 1), which
// papers round to a third of 1F1B's (p - 1) / (m + p - 1).
TEST_CASE("ZB-H1 takes m(F+I+W) + (p-1)(F+I-W) if W <= min(F, I), in the memory of 1F1B") {
  for (int p = 1; p <= 6; ++p) {
    for (int m = p; m <= 2 * p + 3; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      CHECK(most_in_flight(built("zb_h1", p, m)) == p);
      for (const auto& [f, i, w] : all_times(5)) {
        if (w > std::min(f, i)) continue;
        CHECK(timed("zb_h1", p, m, equal_halves(f, i, w)).makespan ==
              m * (f + i + w) + (p - 1) * (f + i - w));
      }
    }
  }
}

TEST_CASE("beyond that domain ZB-H1 takes longer than the formula") {
  CHECK(timed("zb_h1", 4, 8, equal_halves(1, 1, 2)).makespan > 8 * 4 + 3 * 0);
  CHECK(timed("zb_h1", 4, 8, equal_halves(1, 3, 2)).makespan > 8 * 6 + 3 * 2);
}

// The makespan still has the p - 1 forwards before the last stage begins.
TEST_CASE("ZB-H2 has no bubble on any stage at F = I = W, for 2p - 1 micro-batches in flight") {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p - 1; m <= 4 * p; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      const PipelineRun run = timed("zb_h2", p, m, equal_halves(2, 2, 2));
      CHECK(run.longest_span == 6 * m);
      CHECK(run.makespan == 6 * m + 2 * (p - 1));
      CHECK(most_in_flight(built("zb_h2", p, m)) == 2 * p - 1);
    }
  }
}

// Half a stage's work is a chunk: m micro-batches are 6m passes of F = I = W = 1. 1F1B's bubble is
// 6(p - 1) of them, its memory p micro-batches or 2p activations of chunks.
TEST_CASE("the V schedules' bubble and memory at F = I = W") {
  for (int p = 2; p <= 12; ++p) {
    for (int m = 2 * p - 1; m <= 3 * p + 1; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      const PipelineTimes times = equal_halves(1, 1, 1);
      const PipelineRun zero = timed("zb_v", p, m, times);
      CHECK(zero.longest_span == 6 * m);
      CHECK(zero.makespan == 6 * m + p - 1);
      CHECK(most_in_flight(built("zb_v", p, m)) == 2 * p);
      if (p > 2) {
        CHECK(timed("v_half", p, m, times).longest_span - 6 * m == 6 * (p - 1) / 2 - 2);
        CHECK(most_in_flight(built("v_half", p, m)) == p + 2);
      }
      CHECK(timed("v_min", p, m, times).longest_span - 6 * m == 6 * (p - 1) * 2 / 3 - 1);
      CHECK(most_in_flight(built("v_min", p, m)) == 2 * p / 3 + 3);
    }
  }
}

TEST_CASE("a V is folded where the memory is: every stage of V-half holds about as much") {
  const StageOrders stages = built("v_half", 8, 32);
  for (const std::vector<Slot>& slots : stages) {
    CHECK(trainyard::testing::most_in_flight(slots) >= 8);
    CHECK(trainyard::testing::most_in_flight(slots) <= 10);
  }
}

namespace {

struct AutoCase {
  PipelineShape shape;
  std::vector<PassTimes> times;
  std::vector<Bytes> limits;
  bool fits(const StageOrders& orders) const {
    for (std::size_t s = 0; s < orders.size(); ++s)
      if (Bytes(2 * trainyard::testing::most_in_flight(orders[s])) > limits[s]) return false;
    return true;
  }
};

// Stages alike or not, messages of up to three passes, limits from one micro-batch up to none, the
// same for all stages or not.
AutoCase random_case(SplitMix64& random) {
  AutoCase c;
  c.shape.stages = 1 + static_cast<int>(random.below(5));
  c.shape.microbatches = 1 + static_cast<int>(random.below(10));
  const auto length = [&](std::uint64_t most) {
    return Duration(1 + static_cast<std::int64_t>(random.below(most)));
  };
  const bool alike = random.below(2) == 0;
  const Duration message = random.below(2) == 0 ? Duration(0) : length(60);
  PassTimes all{length(20), length(20), length(20), message, {}, Bytes(2)};
  for (int s = 0; s < c.shape.stages; ++s) {
    if (!alike) all = {length(20), length(20), length(20), message, {}, Bytes(2)};
    c.times.push_back(all);
  }
  const auto limit = [&] {
    if (random.below(4) == 0) return kNoMemoryLimit;
    return Bytes(2 + static_cast<std::int64_t>(
                         random.below(static_cast<std::uint64_t>(4 * c.shape.stages))));
  };
  const bool own_limits = random.below(4) == 0;
  for (int s = 0; s < c.shape.stages; ++s)
    c.limits.push_back(s == 0 || own_limits ? limit() : c.limits.front());
  return c;
}

// The longest path of an order with the case's own times.
std::int64_t makespan(const AutoCase& c, const StageOrders& orders) {
  const PipelineTimes times = {
      [&](int stage, Pass pass) {
        const PassTimes& own = c.times[static_cast<std::size_t>(stage)];
        if (pass == Pass::forward) return own.forward.count();
        return (pass == Pass::backward_input ? own.backward_input : own.backward_weight).count();
      },
      c.times.front().communication.count()};
  return longest_path(c.shape, orders, times).makespan;
}

}  // namespace

TEST_CASE(
    "the automatic scheduler is never worse than ZB-H1 and ZB-H2 and keeps its memory limit") {
  SplitMix64 random(1000);
  int compared = 0, better = 0, tight = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    CAPTURE(trial);
    const AutoCase c = random_case(random);
    const ScheduleEntry& entry = *find_schedule("zb_auto");
    const StageOrders orders = build_stages(entry, c.shape, {c.times, c.limits});
    REQUIRE(check_schedule(c.shape, orders).value_or("valid") == "valid");
    CHECK(c.fits(orders));
    const std::int64_t takes = makespan(c, orders);
    bool fits = false;
    for (const char* name : {"zb_h1", "zb_h2"}) {
      const StageOrders other = built(name, c.shape.stages, c.shape.microbatches);
      if (!c.fits(other)) continue;
      fits = true;
      ++compared;
      CHECK(takes <= makespan(c, other));
      better += takes < makespan(c, other) ? 1 : 0;
    }
    tight += fits ? 0 : 1;
  }
  CHECK(compared > 800);
  CHECK(better > 400);
  CHECK(tight > 100);
}

TEST_CASE("the order for a job is the same every time") {
  SplitMix64 random(4);
  const AutoCase c = random_case(random);
  const ScheduleEntry& entry = *find_schedule("zb_auto");
  CHECK(build_stages(entry, c.shape, {c.times, c.limits}) ==
        build_stages(entry, c.shape, {c.times, c.limits}));
}
