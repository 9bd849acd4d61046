// Stages that take their blocks from one alike have the programs that they would have written.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "models/families/network.h"
#include "sim/base/random.h"
#include "sim/plan/step_plan.h"
#include "tests/support/networks.h"
#include "tests/support/roles.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

struct Setup {
  Network network{gpt(24, 64, 4, 1000)};
  TrainingRecipe recipe;
  ParallelPlan plan;
};

bool is_possible(const Setup& setup) {
  const ScheduleEntry* schedule = find_schedule(setup.plan.pipeline.schedule);
  const Execution how = execution(setup.recipe, setup.plan);
  return check_execution(setup.network, how).empty() &&
         !schedule->unsupported(pipeline_shape(setup.recipe, setup.plan));
}

template <std::size_t Size>
const char* one_of(SplitMix64& random, const std::array<const char*, Size>& all) {
  return all[random.below(Size)];
}

// Of 24 layers: alike, of two kinds by turns or from some layer on, or of two stacks.
Network draw_network(SplitMix64& random) {
  Transformer mixture = llama(24, 64, 4, 2, 96, 500);
  mixture.moe = {.experts = 4,
                 .top_k = 2,
                 .ffn_hidden = 64,
                 .first_dense = static_cast<std::int64_t>(random.below(9)),
                 .every = 1 + static_cast<std::int64_t>(random.below(2))};
  switch (random.below(4)) {
    case 0: return gpt(24, 64, 4, 1000);
    case 1: return testing::small_t5(12, 12);
    case 2: return mixture;
    default: return llama(24, 64, 4, 2, 96, 500);
  }
}

Setup draw(SplitMix64& random, const ScheduleEntry& schedule) {
  Setup setup;
  setup.network = draw_network(random);
  TrainingRecipe& recipe = setup.recipe;
  ParallelPlan& plan = setup.plan;
  constexpr std::array<int, 5> kStages = {2, 3, 4, 6, 8};
  plan.degrees = {.tensor = 1 + static_cast<int>(random.below(2)),
                  .data = 1 + static_cast<int>(random.below(2)),
                  .pipeline = kStages[random.below(kStages.size())]};
  recipe.global_batch =
      plan.degrees.data * plan.degrees.pipeline * (1 + static_cast<std::int64_t>(random.below(4)));
  recipe.micro_batch.sequence_length = 64;
  recipe.micro_batch.decoder_sequence_length = 32;
  plan.pipeline.schedule = schedule.name;
  plan.pipeline.chunks = schedule.chunks > 1 || random.below(2) == 0 ? schedule.chunks : 2;
  if (random.below(2) == 0) {  // so many layers to each chunk, unevenly
    const int parts = plan.degrees.pipeline * plan.pipeline.chunks;
    int left = 24;
    for (int part = parts; part > 0; --part) {
      const int fair = left / part;
      const int own = part == 1 ? left : fair - (fair > 1 && random.below(4) == 0 ? 1 : 0);
      plan.pipeline.layers_per_chunk.push_back(own);
      left -= own;
    }
    plan.pipeline.layer_split = LayerSplit::list;
  }
  plan.pipeline.overlap_p2p = random.below(2) == 0;
  plan.pipeline.scatter_gather = random.below(3) == 0;
  plan.tensor_parallel.sequence = random.below(2) == 0;
  plan.data_parallel.kind =
      one_of<6>(random, {"allreduce", "distributed_optimizer", "zero1", "zero2", "zero3", "fsdp"});
  plan.data_parallel.bucket_size = Bytes(1 << (14 + random.below(5)));
  if (random.below(2) == 0) {
    recipe.recompute.form = Recompute::full;
    recipe.recompute.except_last = random.below(3) == 0;
    constexpr std::array kMethods = {RecomputeLayers::Method::all, RecomputeLayers::Method::block,
                                     RecomputeLayers::Method::every,
                                     RecomputeLayers::Method::uniform};
    recipe.recompute.layers = {kMethods[random.below(kMethods.size())], 2};
  }
  if (random.below(3) == 0) recipe.offload.activations = true;
  if (random.below(4) == 0) recipe.steps = 3;
  return setup;
}

}  // namespace

TEST_CASE("stages alike have the programs that each would have written for itself") {
  SplitMix64 random(3);
  for (const ScheduleEntry& schedule : schedules()) {
    for (int round = 0; round < 40; ++round) {
      const Setup setup = draw(random, schedule);
      if (!is_possible(setup)) continue;
      CAPTURE(schedule.name);
      CAPTURE(round);
      const NetworkWork work = network_work(setup.network, execution(setup.recipe, setup.plan));
      const StepPlan shared = plan_step(work, setup.recipe, setup.plan);
      const StepPlan each =
          plan_step(work, setup.recipe, setup.plan, {}, {}, nullptr, StageBlocks::written_each);
      CHECK(testing::role_difference(shared, each) == "");
    }
  }
}

TEST_CASE("names of kernels stand in labels as they are, whatever they have") {
  Setup setup;
  setup.network = gpt(8, 128, 4, 512);
  setup.plan.degrees = {.pipeline = 4};
  setup.recipe.global_batch = 4;
  setup.recipe.micro_batch.sequence_length = 64;
  NetworkWork work = network_work(setup.network, execution(setup.recipe, setup.plan));
  const std::string name =
      "a sign \x01"
      "2\x02, and \x01 half of one";
  for (LayerWork& kind : work.kinds)
    for (WorkItem& item : kind.forward)
      if (auto* named = std::get_if<NamedKernel>(&item)) named->name = name;
  const StepPlan step = plan_step(work, setup.recipe, setup.plan);
  for (const Role& role : step.cast.roles) {
    const std::vector<std::string> labels = role.program.labels.all();
    CHECK(std::any_of(labels.begin(), labels.end(), [&](const std::string& label) {
      return label.find(name) != std::string::npos;
    }));
  }
}
