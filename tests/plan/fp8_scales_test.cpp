// What ranks say to each other so that delayed scales of fp8 are the same on all of them.
#include <doctest/doctest.h>

#include <algorithm>

#include "sim/plan/step_plan.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kLayers = 8, kProducts = 4;  // of a layer: qkv, proj, fc1, fc2
constexpr std::int64_t kMicrobatches = 4;

struct Case {
  TrainingRecipe recipe;
  ParallelPlan plan;
  Case(int tensor, int data, int stages, AmaxReduction how) {
    recipe.precision.compute = Dtype::fp8;
    recipe.precision.fp8_recipe = Fp8Recipe::delayed;
    recipe.precision.fp8_amax_reduction = how;
    recipe.global_batch = kMicrobatches * data;
    recipe.micro_batch.sequence_length = 128;
    plan.degrees = {.tensor = tensor, .data = data, .pipeline = stages};
  }
  StepPlan step() const {
    Transformer network = gpt(kLayers, 1024, 16, 32000);
    network.tied_embeddings = false;
    return plan_step(network_work(network, execution(recipe, plan)), recipe, plan);
  }
};

// Bytes of each all-reduce of scales of a stage, in the order of its program.
std::vector<std::int64_t> said(const StepPlan& step, std::size_t stage) {
  std::vector<std::int64_t> bytes;
  const Program& program = step.cast.roles[stage].program;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      if (op.kind == OpKind::collective && step.cast.connection(op).name == "fp8 scales")
        bytes.push_back(step.cast.transfer(op).bytes.count());
  return bytes;
}

}  // namespace

TEST_CASE("every pass through a chunk ends with the largest numbers of the stage's operands") {
  constexpr int kStages = 2, kChunks = 2;
  Case c(2, 4, kStages, AmaxReduction::stage);
  c.plan.pipeline.schedule = "interleaved_1f1b";
  c.plan.pipeline.chunks = kChunks;
  const StepPlan step = c.step();
  constexpr std::int64_t kOfStage = kProducts * kLayers / kStages;
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    const std::vector<std::int64_t> bytes = said(step, stage);
    CHECK(bytes.size() == 2 * kChunks * kMicrobatches);
    CHECK(std::count(bytes.begin(), bytes.end(), 4 * 3 * kOfStage) == kChunks * kMicrobatches);
    CHECK(std::count(bytes.begin(), bytes.end(), 4 * 2 * kOfStage) == kChunks * kMicrobatches);
  }
}

TEST_CASE("all ranks of a stage agree on scales, or those of each replica") {
  using Groups = std::vector<std::vector<Rank>>;
  const auto groups = [](AmaxReduction how) {
    return groups_on(Case(2, 2, 2, how).step().cast, "fp8 scales");
  };
  CHECK(groups(AmaxReduction::none).empty());
  CHECK(groups(AmaxReduction::stage) ==
        Groups{{Rank(0), Rank(1), Rank(2), Rank(3)}, {Rank(4), Rank(5), Rank(6), Rank(7)}});
  CHECK(groups(AmaxReduction::replica) ==
        Groups{{Rank(0), Rank(1)}, {Rank(2), Rank(3)}, {Rank(4), Rank(5)}, {Rank(6), Rank(7)}});
}

TEST_CASE("a rank alone has nobody to agree with on scales") {
  CHECK(said(Case(1, 1, 2, AmaxReduction::stage).step(), 0).empty());
  CHECK(said(Case(1, 4, 2, AmaxReduction::replica).step(), 0).empty());
  CHECK(said(Case(1, 4, 2, AmaxReduction::stage).step(), 0).size() == 2 * kMicrobatches);
}

TEST_CASE("halves of a backward pass agree on scales once, and recomputation does not") {
  Case c(2, 1, 2, AmaxReduction::stage);
  c.plan.pipeline.schedule = "zb_h1";
  CHECK(said(c.step(), 1).size() == 2 * kMicrobatches);
  Case again(2, 1, 2, AmaxReduction::stage);
  again.recipe.recompute.form = Recompute::full;
  CHECK(said(again.step(), 1).size() == 2 * kMicrobatches);
}

TEST_CASE("a backward pass without products, as of a frozen stage, agrees on nothing") {
  Case c(2, 1, 2, AmaxReduction::stage);
  c.recipe.finetune.kind = Finetune::Kind::frozen;
  c.recipe.finetune.trains.add(Part::head);
  CHECK(said(c.step(), 0).size() == kMicrobatches);
}
