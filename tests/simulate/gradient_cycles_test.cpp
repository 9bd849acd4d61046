// Gradients that leave in cycles, through programs, lowering and engine.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "sim/plan/replicas/data_parallel.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Layers of kParameters parameters in 16 bits; kernels take a nanosecond a byte, so do collectives.
constexpr int kLayers = 5, kRanks = 4;
constexpr std::int64_t kParameters = 1000, kLayer = 2 * kParameters;
constexpr std::int64_t kOptimizer = kLayers * kParameters * 28;  // Adam with 16-bit gradients

struct Cycles {
  std::int64_t cycle = 0;  // ns; 0: buckets
  std::int64_t buffer = kLayer;
  std::int64_t launch = 0, latency = 0;  // ns
  int straggler = 0;                     // times: the last rank's kernels
};

std::unique_ptr<toy::Result> simulated(const toy::Times& times, const Cycles& cycles) {
  NetworkWork work = toy::network(kLayers, times);
  work.kinds[0].parameters = kParameters;
  TrainingRecipe recipe;
  recipe.global_batch = kRanks;
  ParallelPlan plan;
  plan.degrees.data = kRanks;
  plan.data_parallel.bucket_size = plan.data_parallel.first_bucket_size = Bytes(cycles.buffer);
  plan.data_parallel.cycle_time = Duration(1000 * cycles.cycle);
  const auto seconds = [](std::int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) * 1e-9;
  };
  StageGpus gpus;
  gpus.layers = {{{seconds(times.forward)}, {}, {seconds(times.backward)}}};
  gpus.launch = seconds(cycles.launch);
  gpus.replica_latency = seconds(cycles.latency);
  auto result = std::make_unique<toy::Result>();
  result->plan = plan_step(work, recipe, plan, {}, {&gpus, 1});
  LowerOptions options;
  if (cycles.straggler > 0)
    options.stragglers = {{kRanks - 1, static_cast<double>(cycles.straggler)}};
  result->lowered = lower_in_order(result->plan.cast, toy::cluster(kRanks, 1), nullptr,
                                   toy::Compute(), toy::Messages(0), options);
  result->outcome = run(result->lowered.machine);
  return result;
}

std::int64_t nanoseconds(const toy::Result& result) {
  return result.end().count() / 1000;
}

}  // namespace

TEST_CASE("where the host is ahead, cycles are buckets that tensors do not overfill") {
  const toy::Times times{50, kLayer + 1, 0};
  const Cycles buckets;
  for (const std::int64_t cycle : {std::int64_t{1}, std::int64_t{100}, 2 * kLayers * times.forward})
    CHECK(nanoseconds(*simulated(times, {.cycle = cycle})) ==
          nanoseconds(*simulated(times, buckets)));
  // A buffer that one tensor more would overfill: one of two layers, where a bucket takes three.
  const toy::Times slow{50, 2 * kLayer + 1, 0};
  const std::int64_t compute = kLayers * (slow.forward + slow.backward);
  CHECK(nanoseconds(*simulated(slow, {.cycle = 1, .buffer = 2 * kLayer + 1})) ==
        compute + kLayer + kOptimizer);
}

TEST_CASE("gradients that nobody looks for wait for half a cycle from the first call") {
  const toy::Times times{50, 100, 0};
  const std::int64_t cycle = 1'000'000;
  CHECK(nanoseconds(*simulated(times, {.cycle = cycle, .buffer = kLayers * kLayer})) ==
        cycle / 2 + kLayers * kLayer + kOptimizer);
  // An agreement in two rounds of four ranks comes after it.
  CHECK(nanoseconds(
            *simulated(times, {.cycle = cycle, .buffer = kLayers * kLayer, .latency = 300})) ==
        cycle / 2 + 2 * 300 + kLayers * kLayer + kOptimizer);
  // Two buffers of one look leave together, one behind the other.
  CHECK(nanoseconds(*simulated(times, {.cycle = cycle, .buffer = 3 * kLayer})) ==
        cycle / 2 + kLayers * kLayer + kOptimizer);
}

TEST_CASE(
    "what is reduced does not depend on cycles, and one rank that is late keeps all waiting") {
  const toy::Times times{500, 700, 0};
  const Cycles cycles{.cycle = 9000, .latency = 100};
  const auto result = simulated(times, cycles);
  std::int64_t bytes = 0;
  const Program& program = result->plan.cast.roles[0].program;
  const Connection* replicas = result->plan.cast.find("replicas");
  const Connection* agreement = result->plan.cast.find("agreement of replicas");
  REQUIRE(replicas != nullptr);
  REQUIRE(agreement != nullptr);
  for (const Block& block : program.blocks)
    for (const Op& op : block.ops)
      if (op.kind == OpKind::collective && &result->plan.cast.connection(op) == replicas)
        bytes += result->plan.cast.transfer(op).bytes.count();
  CHECK(bytes == kLayers * kLayer);
  for (const TransferSpec& spec : agreement->transfers) {
    CHECK(spec.bytes == Bytes(0));
    CHECK(spec.time > Duration(0));
  }
  Cycles late = cycles;
  late.straggler = 100;
  CHECK(nanoseconds(*simulated(times, late)) >
        100 * kLayers * (times.forward + times.backward) + kOptimizer);
}
