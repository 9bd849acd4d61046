// Closed forms of pipeline schedules, through programs, lowering and engine, in integers.
#include <doctest/doctest.h>

#include <algorithm>

#include "sim/base/random.h"
#include "tests/simulate/toy.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace std::chrono_literals;

namespace {

Duration nanoseconds(std::int64_t n) {
  return std::chrono::nanoseconds(n);
}

std::int64_t in_flight(const toy::Result& result, std::size_t stage) {
  const MemoryPeak& peak =
      std::get<Trace>(result.outcome).peaks[ActorId(static_cast<std::uint32_t>(stage))];
  return peak.by_category[static_cast<std::size_t>(MemoryKind::activations)];
}

}  // namespace

// m useful slots and p - 1 of bubble; 1F1B keeps min(p - s, m) micro-batches, GPipe all
// of them.
TEST_CASE("GPipe and 1F1B take (m + p - 1)(F + B)") {
  const toy::Times times{3, 7, 0};
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 17; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      const NetworkWork work = toy::network(p, times);
      const auto gpipe = toy::step(work, "gpipe", p, m, 1, times);
      const auto one = toy::step(work, "1f1b", p, m, 1, times);
      CHECK(gpipe->end() == nanoseconds((m + p - 1) * 10));
      CHECK(one->end() == nanoseconds((m + p - 1) * 10));
      for (int s = 0; s < p; ++s) {
        CHECK(in_flight(*gpipe, static_cast<std::size_t>(s)) == m);
        CHECK(in_flight(*one, static_cast<std::size_t>(s)) == std::min(p - s, m));
      }
    }
  }
}

TEST_CASE("GPipe with unequal stages takes sum F + (m - 1) max F + sum B + (m - 1) max B") {
  SplitMix64 random(39);
  for (int i = 0; i < 100; ++i) {
    const int p = 2 + static_cast<int>(random.below(6));
    const int m = 1 + static_cast<int>(random.below(12));
    std::vector<toy::Times> layers;
    std::int64_t sum_f = 0, sum_b = 0, max_f = 0, max_b = 0, bound = 0;
    for (int s = 0; s < p; ++s) {
      const toy::Times own{1 + static_cast<std::int64_t>(random.below(9)),
                           1 + static_cast<std::int64_t>(random.below(9)), 0};
      bound = std::max(bound, sum_f + sum_b + m * (own.forward + own.backward));
      sum_f += own.forward;
      sum_b += own.backward;
      max_f = std::max(max_f, own.forward);
      max_b = std::max(max_b, own.backward);
      layers.push_back(own);
    }
    const NetworkWork work = toy::uneven_network(layers);
    const auto gpipe = toy::step(work, "gpipe", p, m, 1, {});
    CHECK(gpipe->end() == nanoseconds(sum_f + (m - 1) * max_f + sum_b + (m - 1) * max_b));
    const auto one = toy::step(work, "1f1b", p, m, 1, {});
    CHECK(one->end() >= nanoseconds(bound));
    CHECK(gpipe->end() >= nanoseconds(bound));
  }
}

// With a hop latency that nothing hides, 1F1B pays for every turn of its steady state.
TEST_CASE("a hop of latency C costs GPipe 2(p-1)C and 1F1B 2C(m + p - 3 - floor((m-2)/p))") {
  for (const std::int64_t hop : {1, 2, 5}) {
    for (int p = 2; p <= 6; ++p) {
      for (int m = p; m <= 3 * p + 2; ++m) {
        CAPTURE(p);
        CAPTURE(m);
        CAPTURE(hop);
        // Long passes, so that a message never catches up with the one before.
        const toy::Times times{30, 70, hop};
        const NetworkWork work = toy::network(p, times);
        const std::int64_t ideal = (m + p - 1) * 100;
        CHECK(toy::step(work, "gpipe", p, m, 1, times)->end() ==
              nanoseconds(ideal + 2 * (p - 1) * hop));
        CHECK(toy::step(work, "1f1b", p, m, 1, times)->end() ==
              nanoseconds(ideal + 2 * hop * (m + p - 3 - (m - 2) / p)));
      }
    }
  }
}

// Chunk passes f, b; the bubble shrinks by v.
TEST_CASE("interleaved 1F1B takes v m (f + b) + (p - 1)(f + b)") {
  const toy::Times times{3, 7, 0};
  for (int p = 2; p <= 5; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = p; m <= 4 * p; m += p) {
        CAPTURE(p);
        CAPTURE(v);
        CAPTURE(m);
        const auto result =
            toy::step(toy::network(p * v, times), "interleaved_1f1b", p, m, v, times);
        CHECK(result->end() == nanoseconds(v * m * 10 + (p - 1) * 10));
        for (int s = 0; s < p; ++s) {
          CHECK(in_flight(*result, static_cast<std::size_t>(s)) ==
                std::min(2 * (p - s - 1) + (v - 1) * p + 1, m * v));
        }
      }
    }
  }
}

TEST_CASE("plain model parallelism computes on one stage at a time") {
  const toy::Times times{3, 7, 2};
  for (int p = 1; p <= 5; ++p) {
    for (int m = 1; m <= 3; ++m) {
      const auto result = toy::step(toy::network(p, times), "sequential", p, m, 1, times);
      CHECK(result->end() == nanoseconds(m * (p * 10 + 2 * (p - 1) * 2)));
    }
  }
}

TEST_CASE("memory returns to what it was before the step") {
  const toy::Times times{3, 7, 0};
  for (const char* schedule : {"gpipe", "1f1b", "sequential"}) {
    const auto result = toy::step(toy::network(8, times), schedule, 4, 8, 1, times);
    for (const MemoryPeak& peak : std::get<Trace>(result->outcome).peaks) {
      CHECK(peak.at_end == peak.resident);
      CHECK(peak.peak > peak.resident);
    }
  }
}

// Two stages with a layer each take (m + 1)(F + B), however far apart they are.
// Source: Megatron-LM's pipeline layouts, and nanotron's stages beyond the layers, have such
// stages.
TEST_CASE("stages without layers pass messages on and take no time of their own") {
  for (const std::int64_t hop : {0, 2}) {
    const toy::Times times{3, 7, hop};
    for (const char* schedule : {"gpipe", "1f1b"}) {
      for (int m = 1; m <= 9; ++m) {
        CAPTURE(schedule);
        CAPTURE(m);
        TrainingRecipe recipe;
        recipe.global_batch = m;
        ParallelPlan plan;
        plan.degrees.pipeline = 5;
        plan.pipeline.schedule = schedule;
        plan.pipeline.layer_split = LayerSplit::list;
        plan.pipeline.layers_per_chunk = {1, 0, 0, 0, 1};
        const StepPlan step = plan_step(toy::network(2, times), recipe, plan);
        const Lowered lowered = lower_in_order(step.cast, toy::cluster(5, 1), nullptr,
                                               toy::Compute(), toy::Messages(hop), {});
        const Outcome outcome = run(lowered.machine);
        const Duration end = std::get<Trace>(outcome).end;
        if (hop == 0) CHECK(end == nanoseconds((m + 1) * 10));
        if (m == 1) CHECK(end == nanoseconds(2 * 10 + 2 * 4 * hop));
      }
    }
  }
}
