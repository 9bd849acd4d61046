// Sharded data parallelism in time and memory, through programs, lowering and engine.
#include "sim/plan/replicas/data_parallel.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Layers of kParameters parameters; kernels take a nanosecond a byte, so do collectives.
constexpr int kLayers = 5, kRanks = 2;
constexpr std::int64_t kParameters = 1000;
constexpr std::int64_t kGather = 2 * kParameters, kReduce = 2 * kParameters;
constexpr std::int64_t kStep = kLayers * kParameters * 28;  // Adam with 16-bit gradients

NetworkWork sharded_network(const toy::Times& times) {
  NetworkWork work = toy::network(kLayers, times);
  work.kinds[0].parameters = kParameters;
  return work;
}

struct Setup {
  TrainingRecipe recipe;
  ParallelPlan plan;
  explicit Setup(const char* kind, int microbatches = 1) {
    recipe.global_batch = std::int64_t{kRanks} * microbatches;
    plan.degrees.data = kRanks;
    plan.data_parallel.kind = kind;
    plan.data_parallel.bucket_size = plan.data_parallel.first_bucket_size =
        Bytes(kReduce);  // a layer
  }
};

std::unique_ptr<toy::Result> simulated(const Setup& setup, const toy::Times& times) {
  auto result = std::make_unique<toy::Result>();
  result->plan = plan_step(sharded_network(times), setup.recipe, setup.plan);
  result->lowered = lower_in_order(result->plan.cast, toy::cluster(kRanks, 1), nullptr,
                                   toy::Compute(), toy::Messages(0), {});
  RunOptions options;
  options.record = Record::ops;
  options.recorded.assign(result->lowered.machine.actors.size(), true);
  result->outcome = run(result->lowered.machine, options);
  return result;
}

std::int64_t nanoseconds(const toy::Result& result) {
  return result.end().count() / 1000;
}

// The most bytes of `owner` that one rank holds at once, beside those it always does.
std::int64_t most(const toy::Result& result, MemoryKind kind, std::string_view owner) {
  const Program& program = result.plan.cast.roles[0].program;
  std::int64_t level = 0, peak = 0;
  const std::vector<MemoryChange>& changes = std::get<Trace>(result.outcome).memory;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const MemoryChange& change = changes[i];
    if (change.category == static_cast<std::uint8_t>(kind) && program.labels[change.owner] == owner)
      level += change.bytes;
    // What an instant leaves, not the order of its changes.
    if (i + 1 == changes.size() || changes[i + 1].at != change.at) peak = std::max(peak, level);
  }
  return peak;
}

Job job(const char* kind, int tensor, int data, int pipeline, int microbatches) {
  Transformer network = gpt(8, 512, 8, 8192);
  network.tied_embeddings = false;
  Job result;
  result.network = network;
  result.cluster = toy::cluster(tensor * data * pipeline, 1);
  result.recipe.global_batch = std::int64_t{microbatches} * data;
  result.recipe.micro_batch.sequence_length = 256;
  result.plan.degrees = {.tensor = tensor, .data = data, .pipeline = pipeline};
  result.plan.data_parallel.bucket_size = Bytes(1 << 20);
  result.plan.data_parallel.kind = kind;
  result.plan.data_parallel.shard_size = data / 2;
  return result;
}

}  // namespace

// The first gather of each pass and the last reduction are in nobody's shade. Behind a layer's
// backward stand the reduction of the layer before it and the gather of the one after.
TEST_CASE("ZeRO-3 hides all gathers but two and all reductions but one") {
  const toy::Times times{kGather + 1, kGather + kReduce + 1, 0};
  const std::int64_t compute = kLayers * (times.forward + times.backward);
  Setup setup("zero3");
  CHECK(nanoseconds(*simulated(setup, times)) == 2 * kGather + compute + kReduce + kStep / kRanks);
  setup.plan.data_parallel.prefetch_layers = 0;
  CHECK(nanoseconds(*simulated(setup, times)) ==
        kLayers * (2 * kGather + kReduce) + compute + kStep / kRanks);
}

TEST_CASE("ZeRO-3 with short layers takes as long as its communication") {
  const toy::Times times{kGather / 4, kGather / 4, 0};
  const auto result = simulated(Setup("zero3"), times);
  // Backward, the gather of the next layer stands before the reduction of this one.
  CHECK(nanoseconds(*result) == kLayers * (2 * kGather + kReduce) + times.forward + kStep / kRanks);
}

TEST_CASE("parameters are gathered after the step, or under the next forward pass") {
  const toy::Times times{kGather + 1, kReduce + 1, 0};
  const std::int64_t compute = kLayers * (times.forward + times.backward);
  CHECK(nanoseconds(*simulated(Setup("zero1"), times)) ==
        compute + kReduce + kStep / kRanks + kLayers * kGather);
  CHECK(nanoseconds(*simulated(Setup("distributed_optimizer"), times)) ==
        kGather + compute + kReduce + kStep / kRanks);
  Setup late("distributed_optimizer");
  late.plan.data_parallel.overlap_param_gather = false;
  CHECK(nanoseconds(*simulated(late, times)) ==
        compute + kReduce + kStep / kRanks + kLayers * kGather);
}

TEST_CASE("prefetching d layers holds d + 1 gathered layers, and no limit lets all be there") {
  const toy::Times times{3 * kGather, 3 * (kGather + kReduce), 0};
  for (int depth = 0; depth <= kMostPrefetchLayers; ++depth) {
    CAPTURE(depth);
    Setup setup("zero3");
    setup.plan.data_parallel.prefetch_layers = depth;
    const auto result = simulated(setup, times);
    CHECK(most(*result, MemoryKind::parameters, "gathered parameters") == (depth + 1) * kGather);
  }
  Setup setup("zero3");
  setup.plan.data_parallel.limit_all_gathers = false;
  const std::int64_t unlimited = most(*simulated(setup, {100 * kGather, 100 * kGather, 0}),
                                      MemoryKind::parameters, "gathered parameters");
  // Those of the forward pass, and gathers of the backward pass before its first reduction.
  CHECK(unlimited >= kLayers * kGather);
}

TEST_CASE("ZeRO-2 holds unreduced gradients of the layer in work and of the bucket in flight") {
  const auto result = simulated(Setup("zero2"), {1, kReduce + 1, 0});
  CHECK(most(*result, MemoryKind::gradients, "unreduced gradients") == 2 * kReduce);
  // No more with a slow network: a bucket leaves when the one before it is reduced.
  const auto slow = simulated(Setup("zero2"), {1, 1, 0});
  CHECK(most(*slow, MemoryKind::gradients, "unreduced gradients") == 2 * kReduce);
}

TEST_CASE("ZeRO-2 on a slow network hides under a forward pass the last bucket alone") {
  constexpr int kMicrobatches = 2;
  const toy::Times times{kReduce, 1, 0};
  const auto result = simulated(Setup("zero2", kMicrobatches), times);
  const std::int64_t reduced = kMicrobatches * (kLayers - 1) + 1;
  CHECK(nanoseconds(*result) == kMicrobatches * (kLayers * times.forward + times.backward) +
                                    reduced * kReduce + kStep / kRanks + kLayers * kGather);
  CHECK(most(*result, MemoryKind::gradients, "unreduced gradients") == 2 * kReduce);
}

TEST_CASE("FSDP reduces through one buffer at a time and keeps shards until the step") {
  Setup setup("fsdp", 3);
  setup.plan.data_parallel.reduce_dtype = Dtype::fp32;
  const auto result = simulated(setup, {1, 1, 0});
  CHECK(most(*result, MemoryKind::communication_buffers, "gradients to reduce") == 4 * kParameters);
  CHECK(most(*result, MemoryKind::gradients, "gradients") == 4 * kLayers * kParameters / kRanks);
  // Kept from forward to backward, a layer is gathered once.
  setup.plan.data_parallel.reshard_after_forward = false;
  const auto kept = simulated(setup, {1, 1, 0});
  CHECK(most(*kept, MemoryKind::parameters, "gathered parameters") == kLayers * kGather);
}

TEST_CASE("FSDP without a reduction per micro-batch accumulates whole gradients") {
  Setup setup("fsdp", 3);
  setup.plan.data_parallel.reduce_every_microbatch = false;
  setup.plan.data_parallel.reduce_dtype = Dtype::fp32;
  const auto result = simulated(setup, {1, 1, 0});
  CHECK(most(*result, MemoryKind::gradients, "accumulated gradients") == 4 * kLayers * kParameters);
}

TEST_CASE("every strategy gives back what it takes") {
  for (const StrategyEntry& entry : data_parallel_strategies()) {
    for (const int pipeline : {1, 2, 4}) {
      if (entry.name == "nn_data_parallel" && pipeline > 1) continue;
      for (const int microbatches : {1, 4}) {
        for (const bool plain : {true, false}) {
          CAPTURE(entry.name);
          CAPTURE(pipeline);
          CAPTURE(microbatches);
          CAPTURE(plain);
          Job own = job(std::string(entry.name).c_str(), 1, 4, pipeline, microbatches);
          own.plan.data_parallel.loss_in_model = true;
          if (!plain) {
            own.plan.data_parallel.overlap_backward = false;
            own.plan.data_parallel.reshard_after_forward = false;
            own.plan.data_parallel.reduce_every_microbatch = false;
            own.plan.data_parallel.prefetch_layers = 2;
            own.recipe.recompute.form = Recompute::full;
            own.recipe.gradient_clipping = true;
          }
          const auto step = simulate_step(own);
          for (const MemoryPeak& peak : step->trace().peaks) {
            CHECK(peak.at_end == peak.resident);
            if (peak.resident > Bytes(0)) CHECK(peak.peak > peak.resident);
          }
          // The breakdown checks itself.
          CHECK(summarize(own, *step).step_time.has_value());
        }
      }
    }
  }
}

// With routed experts and with every way to order passes that a strategy allows.
TEST_CASE("sharded pipelines of experts give back what they take") {
  struct Order {
    const char* schedule;
    int chunks;
    bool paired = false;
  };
  std::set<std::string_view> paired;
  for (const StrategyEntry& entry : data_parallel_strategies()) {
    for (const Order& order :
         {Order{"gpipe", 1}, Order{"interleaved_1f1b", 2}, Order{"zb_h1", 1},
          Order{"interleaved_1f1b", 2, true}, Order{"zb_v", 2}, Order{"dualpipe", 1}}) {
      for (const int expert : {1, 2, 4}) {
        for (const bool keeps : {true, false}) {
          Job own = job(std::string(entry.name).c_str(), 1, 4, 2, 8);
          auto& network = own.network.change<Transformer>();
          network.moe.experts = 8;
          network.moe.top_k = 2;
          network.moe.ffn_hidden = 512;
          network.biases = false;
          own.plan.experts.ranks = expert;
          own.plan.pipeline.schedule = order.schedule;
          own.plan.pipeline.chunks = order.chunks;
          own.plan.pipeline.overlap_passes = order.paired;
          own.plan.data_parallel.reshard_after_forward = !keeps;
          own.plan.data_parallel.reduce_every_microbatch = keeps;
          own.plan.data_parallel.overlap_param_gather = order.paired;
          const DataParallelStrategy strategy = strategy_of(own.plan, own.recipe);
          const PipelineShape shape = pipeline_shape(own.recipe, own.plan);
          const ScheduleEntry& schedule = *find_schedule(order.schedule);
          if (unsupported(strategy, shape, build_stages(schedule, shape))) continue;
          // What scenarios refuse.
          if (strategy.updates_elsewhere || strategy.has_leader()) continue;
          if (own.plan.expert_replicas() % strategy.replicas != 0) continue;
          CAPTURE(entry.name);
          CAPTURE(order.schedule);
          CAPTURE(expert);
          CAPTURE(keeps);
          const auto step = simulate_step(own);
          for (const MemoryPeak& peak : step->trace().peaks)
            CHECK(peak.at_end == peak.resident);
          CHECK(summarize(own, *step).step_time.has_value());
          if (order.paired) paired.insert(entry.name);
        }
      }
    }
  }
  CHECK(fmt::format("{}", fmt::join(paired, " ")) ==
        "allreduce distributed_optimizer local_sgd zero1 zero2");  // zero2: that keeps gradients
}

TEST_CASE("pairs are refused where passes gather, are led, or come before what they need") {
  PipelineShape shape{.stages = 1, .microbatches = 3, .paired = true};
  const auto refused = [&](const char* kind, const StageOrders& orders) {
    const Job own = job(kind, 1, 4, 1, 8);
    return unsupported(strategy_of(own.plan, own.recipe), shape, orders).has_value();
  };
  const StageOrders pairs = build_stages(*find_schedule("1f1b"), shape);
  for (const char* kind : {"zero2", "zero3", "fsdp", "nn_data_parallel"})
    CHECK(refused(kind, pairs));
  for (const char* kind : {"allreduce", "zero1", "distributed_optimizer"})
    CHECK_FALSE(refused(kind, pairs));
  // Chunk b begins in a pair.
  shape = {.stages = 1, .microbatches = 2, .chunks = 2};
  const auto ordered = [&](const char* slots) {
    CustomSchedule custom;
    custom.slots = {slots};
    return custom_orders(custom, shape);
  };
  CHECK_FALSE(refused("distributed_optimizer", ordered("F0a F0b F1a F1b+B0b B1b B0a B1a")));
  CHECK(refused("distributed_optimizer", ordered("F0a F1a F0b+B1a")));
  CHECK_FALSE(refused("zero1", ordered("F0a F1a F0b+B1a")));
}

// A cast reads 4 and writes 2 bytes, and back; what follows a message is nobody's wait but the
// last.
TEST_CASE(
    "compressing takes time of the backward pass, and the last bucket's way back is exposed") {
  constexpr std::int64_t cast = 6 * kParameters, message = 2 * kParameters;
  const toy::Times times{10, message + 1, 0};
  Setup setup("allreduce");
  setup.recipe.precision.gradients = Dtype::fp32;
  setup.plan.data_parallel.bucket_size = setup.plan.data_parallel.first_bucket_size =
      Bytes(4 * kParameters);
  setup.plan.data_parallel.compression.kind = CompressionKind::bf16;
  const std::int64_t optimizer = kLayers * kParameters * 30;  // Adam with fp32 gradients
  CHECK(nanoseconds(*simulated(setup, times)) ==
        kLayers * (times.forward + times.backward + cast) + message + cast + optimizer);
  // Where the network is what takes long, each message waits for the one before and its cast.
  setup.plan.data_parallel.compression.kind = CompressionKind::bf16;
  CHECK(nanoseconds(*simulated(setup, {10, 1, 0})) ==
        kLayers * times.forward + 1 + cast + kLayers * (message + cast) + optimizer);
}

TEST_CASE("compressed gradients give back what they take, in every order of passes") {
  for (const char* schedule : {"1f1b", "zb_h1", "dualpipe"}) {
    for (std::size_t kind = 1; kind < kCompressionNames.size(); ++kind) {
      for (const bool overlap : {true, false}) {
        CAPTURE(schedule);
        CAPTURE(kCompressionNames[kind]);
        CAPTURE(overlap);
        Job own = job("allreduce", 1, 4, 2, 8);
        own.recipe.precision.gradients = Dtype::fp32;
        own.plan.pipeline.schedule = schedule;
        own.plan.data_parallel.overlap_backward = overlap;
        own.plan.data_parallel.compression.kind = static_cast<CompressionKind>(kind);
        const auto step = simulate_step(own);
        for (const MemoryPeak& peak : step->trace().peaks)
          CHECK(peak.at_end == peak.resident);
        CHECK(summarize(own, *step).step_time.has_value());
      }
    }
  }
}

// Whoever waits for whom is fixed, so a slower rank shifts the peak and does not change it.
TEST_CASE("the peak of a pipeline with a sharded optimizer does not depend on speed") {
  Job own = job("distributed_optimizer", 1, 2, 4, 8);
  const auto even = simulate_step(own);
  own.stragglers = {{.rank = 3, .compute_slowdown = 1.7}};
  const auto uneven = simulate_step(own);
  for (std::size_t rank = 0; rank < even->lowered.class_of_rank.size(); ++rank) {
    const auto peak = [&](const Step& step) {
      return step.trace().peaks[step.lowered.classes[step.lowered.class_of_rank[rank]].actor].peak;
    };
    CHECK(peak(*even) == peak(*uneven));
  }
}

TEST_CASE("what does not fit replicated fits sharded") {
  Job own = job("allreduce", 1, 8, 1, 1);
  own.cluster.server.gpu.memory = Bytes(400 << 20);
  const auto replicated = simulate_step(own);
  REQUIRE(std::holds_alternative<OutOfMemory>(replicated->outcome));
  const auto& over = std::get<OutOfMemory>(replicated->outcome);
  CHECK(over.needed > over.capacity);
  CHECK(over.owners.front().bytes > 0);
  own.plan.data_parallel.kind = "fsdp";
  CHECK(std::holds_alternative<Trace>(simulate_step(own)->outcome));
}

TEST_CASE("clipping makes every stage wait for the gradients of all of them") {
  Job own = job("distributed_optimizer", 1, 2, 4, 8);
  const Duration free = simulate_step(own)->trace().end;
  own.recipe.gradient_clipping = true;
  const auto clipped = simulate_step(own);
  CHECK(clipped->trace().end > free);
  // All optimizers begin at once, after the scalar.
  std::vector<Duration> begins;
  for (const Span& span : clipped->trace().spans) {
    const Program& program = *clipped->lowered.machine.actors[span.actor].program;
    const Op& op = program.op(span.call, span.op);
    if (program.labels[op.label] == "all-reduce gradient norm") begins.push_back(span.end);
  }
  REQUIRE(begins.size() == clipped->lowered.machine.actors.size());
  for (const Duration begin : begins)
    CHECK(begin == begins.front());
}

// Nothing else is under way at the end of a pass, so that each all-reduce is seen whole.
TEST_CASE("a step is longer by every all-reduce of fp8 scales") {
  constexpr int kMicrobatches = 3;
  Job own = job("allreduce", 1, 4, 1, kMicrobatches);
  own.plan.data_parallel.overlap_backward = false;
  own.cluster.server.gpu.fp8 = FlopsPerSecond(2e14);
  own.recipe.precision.compute = Dtype::fp8;
  own.recipe.precision.fp8_recipe = Fp8Recipe::delayed;
  const Duration free = simulate_step(own)->trace().end;
  own.recipe.precision.fp8_amax_reduction = AmaxReduction::stage;
  const auto agreed = simulate_step(own);
  Duration said{};
  int times = 0;
  for (const Span& span : agreed->trace().spans) {
    const Program& program = *agreed->lowered.machine.actors[span.actor].program;
    const Op& op = program.op(span.call, span.op);
    if (span.actor != ActorId(0) || !program.labels[op.label].ends_with("fp8 scales")) continue;
    if (op.kind != OpKind::collective) continue;
    said += span.end - span.active;
    ++times;
  }
  CHECK(times == 2 * kMicrobatches);
  CHECK(agreed->trace().end - free == said);
}
