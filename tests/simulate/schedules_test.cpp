// Every schedule through programs, lowering and engine, against the longest path of its order.
#include <doctest/doctest.h>

#include "sim/base/random.h"
#include "sim/schedule/custom_schedule.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/max_plus.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

std::int64_t activations_at_peak(const toy::Result& result, std::size_t stage) {
  const MemoryPeak& peak =
      std::get<Trace>(result.outcome).peaks[ActorId(static_cast<std::uint32_t>(stage))];
  return peak.by_category[static_cast<std::size_t>(MemoryKind::activations)];
}

}  // namespace

// One layer per virtual stage. A message takes no longer than a pass, so none waits for another.
TEST_CASE("a step of any schedule takes the longest path of its order, in its order's memory") {
  SplitMix64 random(6);
  int runs = 0;
  for (const ScheduleEntry& entry : schedules()) {
    for (int trial = 0; trial < 12; ++trial) {
      const int p = 1 + static_cast<int>(random.below(6));
      const int m = 1 + static_cast<int>(random.below(14));
      const PipelineShape shape = shape_of(entry, p, m);
      if (entry.unsupported(shape) || (p == 1 && shape.chunks > 1)) continue;
      if (entry.updates != Updates::after_all) continue;
      const auto pass = [&] { return 6 + static_cast<std::int64_t>(random.below(20)); };
      toy::Times times{pass(), 0, static_cast<std::int64_t>(random.below(6)), pass()};
      const std::int64_t input = pass();
      times.backward = input + times.weight;
      CAPTURE(entry.name);
      CAPTURE(p);
      CAPTURE(m);
      const NetworkWork work = toy::network(virtual_stages(shape), times);
      const auto result = toy::step(work, std::string(entry.name), p, m, shape.chunks, times);
      const StageOrders orders = build_stages(entry, shape);
      const PipelineTimes passes = equal_halves(times.forward, input, times.weight, times.hop);
      CHECK(result->end() ==
            std::chrono::nanoseconds(longest_path(shape, orders, passes).makespan));
      for (int s = 0; s < p; ++s) {
        const auto at = static_cast<std::size_t>(s);
        CHECK(activations_at_peak(*result, at) == most_in_flight(orders[at]));
      }
      ++runs;
    }
  }
  CHECK(runs > 60);
}

TEST_CASE("memory returns to what it was under every schedule") {
  const toy::Times times{3, 7, 1, 3};
  for (const ScheduleEntry& entry : schedules()) {
    const PipelineShape shape = shape_of(entry, 4, 8);
    const auto result = toy::step(toy::network(virtual_stages(shape), times),
                                  std::string(entry.name), 4, 8, shape.chunks, times);
    for (const MemoryPeak& peak : std::get<Trace>(result->outcome).peaks) {
      CHECK(peak.at_end == peak.resident);
      CHECK(peak.peak > peak.resident);
    }
  }
}

namespace {

// When the last stage has done its calls of a round.
Duration round_end(const toy::Result& result, std::size_t round) {
  Duration end{};
  for (const Span& span : std::get<Trace>(result.outcome).spans)
    if (span.call < result.plan.cast.roles[index(span.actor)].round_calls[round])
      end = std::max(end, span.end);
  return end;
}

}  // namespace

// The slowest stage is always at work: m max (F + B), whatever the other stages take.
TEST_CASE("without a flush a step takes m times the slowest stage") {
  SplitMix64 random(2019);
  for (const char* schedule : {"pipedream", "pipedream_2bw"}) {
    for (int trial = 0; trial < 20; ++trial) {
      const int p = 1 + static_cast<int>(random.below(5));
      const int m = p + static_cast<int>(random.below(6));
      std::vector<toy::Times> layers;
      std::int64_t most = 0;
      for (int s = 0; s < p; ++s) {
        layers.push_back({1 + static_cast<std::int64_t>(random.below(9)),
                          1 + static_cast<std::int64_t>(random.below(9)), 0});
        most = std::max(most, layers.back().forward + layers.back().backward);
      }
      CAPTURE(schedule);
      CAPTURE(p);
      CAPTURE(m);
      const auto result = toy::step(toy::uneven_network(layers), schedule, p, m, 1, {});
      const auto last = static_cast<std::size_t>(result->plan.rounds.measured);
      CHECK(round_end(*result, last) - round_end(*result, last - 1) ==
            std::chrono::nanoseconds(m * most));
    }
  }
}

// The second stage takes the micro-batches the other way round: its first forward needs the message
// that was sent last.
TEST_CASE("a receiver may use messages in another order than they are sent") {
  TrainingRecipe recipe;
  recipe.global_batch = 2;
  ParallelPlan plan;
  plan.degrees.pipeline = 2;
  plan.pipeline.schedule = kCustomSchedule;
  plan.pipeline.custom.slots = {"F0 F1 B1 B0", "F1 F0 B0 B1"};
  const toy::Times times{10, 20, 3};
  toy::Result result;
  result.plan = plan_step(toy::network(2, times), recipe, plan);
  result.lowered = lower_in_order(result.plan.cast, toy::cluster(2, 1), nullptr, toy::Compute(),
                                  toy::Messages(times.hop), {});
  result.outcome = run(result.lowered.machine);
  const PipelineShape shape = pipeline_shape(recipe, plan);
  CHECK(result.end() ==
        std::chrono::nanoseconds(
            longest_path(shape, custom_orders(plan.pipeline.custom, shape), equal_stages(10, 20, 3))
                .makespan));
}
