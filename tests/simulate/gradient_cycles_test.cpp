// Gradients that leave in cycles, through programs, lowering and engine.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

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
  bool cpu = false;
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
  gpus.host_computes = cycles.cpu;
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

namespace {

struct Exchanges {
  std::vector<std::int64_t> bytes;
  std::vector<std::int64_t> waits;  // ns, of meetings
};

Exchanges exchanges(const toy::Times& times, const Cycles& cycles) {
  const auto result = simulated(times, cycles);
  const Cast& cast = result->plan.cast;
  Exchanges found;
  for (const Block& block : cast.roles[0].program.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::collective) continue;
      const TransferSpec& spec = cast.transfer(op);
      if (cast.connection(op).traffic == Traffic::meeting)
        found.waits.push_back(spec.time.count() / 1000);
      else
        found.bytes.push_back(spec.bytes.count());
    }
  }
  return found;
}

}  // namespace

TEST_CASE("a slow host calls for gradients one by one, a cycle apart or several together") {
  const toy::Times times{1, 1, 0};
  constexpr std::int64_t kLaunch = 1000, kWhole = kLayers * kLayer;
  // Each gradient is called for a launch after the one before it and made at once.
  const Exchanges alone = exchanges(times, {.cycle = 10, .buffer = kWhole, .launch = kLaunch});
  CHECK(alone.bytes == std::vector<std::int64_t>(kLayers, kLayer));
  // Looks come 1.1, 3.3 and 5.5 launches after the first call.
  const Exchanges pairs = exchanges(times, {.cycle = 2200, .buffer = kWhole, .launch = kLaunch});
  CHECK(pairs.bytes == std::vector<std::int64_t>{2 * kLayer, 2 * kLayer, kLayer});
  // All of them, six launches after the first.
  const Exchanges together =
      exchanges(times, {.cycle = 12 * kLaunch, .buffer = kWhole, .launch = kLaunch});
  CHECK(together.bytes == std::vector<std::int64_t>{kWhole});
  REQUIRE(together.waits.size() == 1);
  CHECK(std::abs(together.waits.front() - (2 * kLaunch - 1)) <= 1);
  // Where the host is ahead no launch counts.
  const toy::Times slow{2000, 4000, 0};
  CHECK(exchanges(slow, {.cycle = 10, .buffer = kWhole, .launch = 1}).bytes ==
        std::vector<std::int64_t>{kWhole});
}

TEST_CASE("a CPU calls for a gradient when it has made it") {
  const toy::Times times{2000, 4000, 0};
  constexpr std::int64_t kWhole = kLayers * kLayer;
  const Exchanges found =
      exchanges(times, {.cycle = 10, .buffer = kWhole, .launch = 1, .cpu = true});
  CHECK(found.bytes == std::vector<std::int64_t>(kLayers, kLayer));
}
