// Which layers of a stage recompute, and the memory of stages whose layers differ in it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "sim/plan/recompute_places.h"
#include "sim/plan/step_plan.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Method = RecomputeLayers::Method;

struct Case {
  Transformer network = gpt(8, 256, 4, 1000);
  TrainingRecipe recipe;
  ParallelPlan plan;
  Case(int stages, int chunks, Method method, int layers) {
    recipe.global_batch = 8;
    recipe.micro_batch.sequence_length = 64;
    recipe.recompute.form = method == Method::all ? Recompute::none : Recompute::full;
    recipe.recompute.layers = {method, layers};
    plan.degrees.pipeline = stages;
    plan.pipeline.chunks = chunks;
    if (chunks > 1) plan.pipeline.schedule = "interleaved_1f1b";
  }
  NetworkWork work() const { return network_work(network, execution(recipe, plan)); }
  StepPlan step() const { return plan_step(work(), recipe, plan); }
};

struct Peaks {
  std::map<MemoryKind, std::int64_t> most;
  std::int64_t most_together = 0;  // activations and workspace
  std::int64_t left = 0;           // of those, at the end
};

// Effects of a stage's ops in the order in which they are enqueued: on the compute stream, where
// activations come and go, that is the order in time.
Peaks replay(const StepPlan& step, std::size_t stage) {
  const Program& program = step.cast.roles[stage].program;
  std::map<MemoryKind, std::int64_t> live;
  Peaks peaks;
  for (const Call& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops) {
      for (const int sign : {1, -1}) {
        for (std::uint32_t i = 0; i < op.effects; ++i) {
          const MemoryEffect& effect = program.effects[op.first_effect + i];
          if ((effect.bytes > 0) == (sign > 0))
            live[static_cast<MemoryKind>(effect.category)] += effect.bytes;
        }
        for (const auto& [kind, bytes] : live)
          peaks.most[kind] = std::max(peaks.most[kind], bytes);
        peaks.most_together = std::max(peaks.most_together,
                                       live[MemoryKind::activations] + live[MemoryKind::workspace]);
      }
    }
  }
  peaks.left = live[MemoryKind::activations] + live[MemoryKind::workspace];
  return peaks;
}

std::int64_t layer_bytes(const Case& c, Recompute recompute) {
  Execution how = execution(c.recipe, c.plan);
  how.recompute.form = recompute;
  how.recompute.layers = {};
  return layer(network_work(c.network, how)).activations().count();
}

std::int64_t embedding_bytes(const Case& c) {
  return c.work().kinds[0].activations().count();
}

std::vector<bool> recomputes(const RecomputePlaces& placed) {
  std::vector<bool> found;
  for (std::size_t place = 0; place < placed.work.chain.size(); ++place)
    if (placed.work.divisible[place])
      found.push_back(
          !placed.work.kinds[static_cast<std::size_t>(placed.work.chain[place])].recompute.empty());
  return found;
}

RecomputePlaces placed(const Case& c) {
  const NetworkWork work = c.work();
  return place_recompute(work,
                         split_layers(work, pipeline_shape(c.recipe, c.plan), c.recipe, c.plan),
                         c.recipe.recompute.layers);
}

}  // namespace

TEST_CASE("block takes the first layers of each chunk, every each n-th") {
  using Flags = std::vector<bool>;
  CHECK(recomputes(placed(Case(2, 1, Method::block, 3))) == Flags{1, 1, 1, 0, 1, 1, 1, 0});
  CHECK(recomputes(placed(Case(2, 2, Method::block, 1))) == Flags{1, 0, 1, 0, 1, 0, 1, 0});
  CHECK(recomputes(placed(Case(2, 1, Method::every, 2))) == Flags{0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(recomputes(placed(Case(2, 1, Method::every, 3))) == Flags{0, 0, 1, 0, 0, 0, 1, 0});
}

TEST_CASE("a stage of mixed layers keeps, per micro-batch in flight, the sum of both kinds") {
  for (const Method method : {Method::block, Method::every}) {
    const Case c(4, 1, method, method == Method::block ? 1 : 2);
    const StepPlan step = c.step();
    const std::int64_t none = layer_bytes(c, Recompute::none);
    const std::int64_t full = layer_bytes(c, Recompute::full);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const auto in_flight = static_cast<std::int64_t>(4 - stage);
      const std::int64_t ends = stage == 0   ? embedding_bytes(c)
                                : stage == 3 ? c.work().kinds[2].activations().count()
                                             : 0;
      const Peaks peaks = replay(step, stage);
      CHECK(peaks.most.at(MemoryKind::activations) == in_flight * (none + full + ends));
      CHECK(peaks.most.at(MemoryKind::workspace) == none - full);
      CHECK(peaks.left == 0);
    }
  }
}

// While the last group runs backward: of the others their inputs, of this one everything.
TEST_CASE("uniform groups keep one input and restore the whole group") {
  for (const int layers : {1, 2, 3, 4}) {
    CAPTURE(layers);
    Case c(1, 1, Method::uniform, layers);
    c.network.vocabulary = 8;  // so that the loss is not the peak
    c.recipe.global_batch = 1;
    const StepPlan step = c.step();
    const std::int64_t none = layer_bytes(c, Recompute::none);
    const std::int64_t input = layer_bytes(c, Recompute::full);
    const std::int64_t groups = (8 + layers - 1) / layers;
    const std::int64_t last = 8 - (groups - 1) * layers;
    const Peaks peaks = replay(step, 0);
    const std::int64_t ends = embedding_bytes(c);
    const std::int64_t loss = c.work().kinds[2].activations().count();
    CHECK(peaks.most.at(MemoryKind::activations) == groups * input + ends + loss);
    CHECK(peaks.most.at(MemoryKind::workspace) == layers * none - input);
    const std::int64_t in_last = ends + groups * input + last * none - input;
    const std::int64_t in_full = ends + (groups - 1) * input + layers * none - input;
    CHECK(peaks.most_together == std::max(in_last, groups > 1 && last < layers ? in_full : 0));
    CHECK(peaks.left == 0);
  }
}

TEST_CASE("uniform groups run again in one go, before the backward pass of their last layer") {
  Case c(1, 1, Method::uniform, 4);
  const RecomputePlaces places = placed(c);
  CHECK(places.again[4] == ChainRange{1, 5});
  CHECK(places.again[3] == ChainRange{3, 3});
  CHECK(places.again[8] == ChainRange{5, 9});
  CHECK(places.again[9] == ChainRange{9, 10});
  CHECK(places.work.kinds[static_cast<std::size_t>(places.work.chain[2])].activations() ==
        Bytes(0));
}

TEST_CASE("executed FLOPs count the layers that run again") {
  const auto flops = [](Method method, int layers) {
    return Case(2, 1, method, layers).step().executed_flops.count();
  };
  const double model = Case(2, 1, Method::all, 1).step().model_flops.count();
  CHECK(Case(2, 1, Method::all, 1).step().executed_flops.count() == model);
  const double all = flops(Method::uniform, 1) - model;
  CHECK(all > 0);
  CHECK(flops(Method::uniform, 4) == model + all);
  CHECK(flops(Method::block, 1) == model + all / 4);
  CHECK(flops(Method::block, 4) == model + all);
  CHECK(flops(Method::every, 2) == model + all / 2);
}

TEST_CASE("zero-bubble schedules hold what weight gradients need of restored tensors") {
  Case c(2, 1, Method::all, 1);
  c.plan.pipeline.schedule = "zb_h1";
  c.recipe.recompute.form = Recompute::modules;
  c.recipe.recompute.modules.add(RecomputeModule::mlp);
  const StepPlan step = c.step();
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const Peaks peaks = replay(step, stage);
    CHECK(peaks.left == 0);
    CHECK(peaks.most.at(MemoryKind::workspace) >= 4 * 16 * 64 * 256);
  }
}

namespace {

// arXiv:2205.05198: figure 1 by its own terms (12 l h^2 parameters of 18 bytes, activations without
// the embedding), figure 7 as percentages of tensor parallelism alone, read off by the authors of
// Calculon.
struct Published {
  const char* name;
  std::int64_t layers, hidden, heads;
  int pipeline, chunks;
  std::int64_t micro_batch;
  double states_gib, baseline_gib, present_gib;  // figure 1
  std::array<double, 4> percent;                 // figure 7: SP, selective, both, full
};

constexpr std::array<Published, 4> kPublished = {{
    {"22B", 48, 6144, 64, 1, 1, 4, 45.5625, 59.25, 9.5625, {66.84, 49.42, 16.18, 7.64}},
    {"175B", 96, 12288, 96, 8, 3, 1, 45.5625, 66.84375, 12.3515625, {62.04, 56.53, 18.49, 8.71}},
    {"530B",
     105,
     20480,
     128,
     35,
     3,
     1,
     31.640625,
     114.0234375,
     23.076171875,
     {58.31, 62.04, 20.27, 9.42}},
    {"1T", 128, 25600, 160, 64, 1, 1, 32.958984375, 131.25, 26.5625, {58.31, 62.04, 20.27, 9.42}},
}};

// GiB of activations on the first stage, without the embedding's.
double activations(const Published& p, bool sequence_parallel, Recompute recompute) {
  Case c(p.pipeline, p.chunks, Method::all, 1);
  c.network = gpt(p.layers, p.hidden, p.heads, 51200);
  c.recipe.micro_batch.size = p.micro_batch;
  c.recipe.global_batch = p.micro_batch * 2 * p.pipeline;
  c.recipe.micro_batch.sequence_length = 2048;
  c.recipe.precision.compute = Dtype::fp16;
  c.recipe.recompute.form = recompute;
  c.plan.degrees.tensor = 8;
  c.plan.tensor_parallel.sequence = sequence_parallel;
  c.plan.pipeline.schedule = p.chunks > 1     ? "interleaved_1f1b"
                             : p.pipeline > 1 ? "1f1b"
                                              : "sequential";
  NetworkWork work = c.work();
  work.kinds[0].kept = {};
  work.kinds[2].kept = {};
  const StepPlan step = plan_step(work, c.recipe, c.plan);
  return static_cast<double>(replay(step, 0).most.at(MemoryKind::activations)) /
         static_cast<double>(std::int64_t{1} << 30);
}

}  // namespace

TEST_CASE("Korthikanti et al. 2022, figure 1, to the last digit") {
  for (const Published& p : kPublished) {
    CAPTURE(p.name);
    CHECK(activations(p, false, Recompute::none) == p.baseline_gib);
    CHECK(activations(p, true, Recompute::selective) == p.present_gib);
    const std::int64_t states = 18 * 12 * p.layers * p.hidden * p.hidden / 8 / p.pipeline;
    CHECK(static_cast<double>(states) / static_cast<double>(std::int64_t{1} << 30) == p.states_gib);
  }
}

TEST_CASE("Korthikanti et al. 2022, figure 7, within 0.2 points") {
  for (const Published& p : kPublished) {
    CAPTURE(p.name);
    const double baseline = activations(p, false, Recompute::none);
    const std::array<double, 4> shares = {
        activations(p, true, Recompute::none), activations(p, false, Recompute::selective),
        activations(p, true, Recompute::selective), activations(p, false, Recompute::full)};
    for (std::size_t i = 0; i < shares.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(100 * shares[i] / baseline - p.percent[i]) <= 0.2);
    }
  }
}
