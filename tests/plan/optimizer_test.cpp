// Kernels of an optimizer that is no one kernel.
#include <doctest/doctest.h>

#include "sim/plan/step_plan.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kLayers = 6;

TrainingRecipe recipe_with(OptimizerOperators operators) {
  TrainingRecipe recipe;
  recipe.micro_batch.sequence_length = 128;
  recipe.precision.compute = Dtype::fp32;
  recipe.precision.gradients = Dtype::fp32;
  recipe.precision.master_weights = MasterWeights::none;
  recipe.optimizer_operators = operators;
  return recipe;
}

NetworkWork work_of(const TrainingRecipe& recipe) {
  Transformer network = gpt(kLayers, 1024, 16, 32000);
  network.positional = Positional::rope;
  network.tied_embeddings = false;
  return network_work(network, execution(recipe, {}));
}

}  // namespace

TEST_CASE("an optimizer that waits for the gradients is launched when they are there") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    const TrainingRecipe recipe = recipe_with({.accesses = 39, .launches = 2, .waits = waits});
    const StepPlan step = plan_step(work_of(recipe), recipe, {});
    int drained = 0;
    for (const engine::Block& block : step.cast.roles.front().program.blocks)
      for (const engine::Op& op : block.ops)
        drained += op.drained && op.launches == 156 ? 1 : 0;
    CHECK(drained == (waits ? 1 : 0));
  }
}

TEST_CASE("an optimizer by operators has the bytes and launches of all of them") {
  const auto kernels_of = [](double accesses, double launches) {
    const TrainingRecipe recipe = recipe_with({.accesses = accesses, .launches = launches});
    const StepPlan step = plan_step(work_of(recipe), recipe, {});
    std::vector<std::int64_t> bytes;
    for (const std::uint32_t index : step.cast.roles.front().program.kernels) {
      const auto* kernel = std::get_if<MemoryBound>(&step.cast.kernels[index]);
      if (kernel != nullptr && kernel->op == MemoryOp::optimizer)
        bytes.push_back(memory_traffic(*kernel).count());
    }
    return bytes;
  };
  std::int64_t p = 0;
  const NetworkWork work = work_of(recipe_with({}));
  for (const int kind : work.chain)
    p += work.kinds[index(kind)].parameters;
  CHECK(kernels_of(0, 0) == std::vector<std::int64_t>{28 * p});
  CHECK(kernels_of(39, 0) == std::vector<std::int64_t>{39 * 4 * p});
  // Four matrices of each layer, embedding and logits; three arrays for each.
  const std::vector<std::int64_t> many = kernels_of(39, 2);
  CHECK(many.size() == 2 * 3 * (4 * kLayers + 2));
  CHECK(many.front() == (39 * p + 155) / 156 * 4);
}

// Of all gradients, though the optimizer's states are divided.
TEST_CASE("passes over gradients move all of them so many times") {
  ParallelPlan plan;
  plan.degrees.data = 4;
  for (const char* kind : {"allreduce", "distributed_optimizer"}) {
    plan.data_parallel.kind = kind;
    const auto moved = [&](int passes) {
      TrainingRecipe recipe = recipe_with({.gradient_passes = passes});
      recipe.global_batch = 4;
      const StepPlan step = plan_step(work_of(recipe), recipe, plan);
      std::int64_t bytes = 0;
      for (const std::uint32_t index : step.cast.roles.front().program.kernels) {
        const auto* kernel = std::get_if<MemoryBound>(&step.cast.kernels[index]);
        if (kernel != nullptr && kernel->op == MemoryOp::elementwise)
          bytes += memory_traffic(*kernel).count();
      }
      return bytes;
    };
    std::int64_t p = 0;
    const NetworkWork work = work_of(recipe_with({}));
    for (const int kind_of : work.chain)
      p += work.kinds[index(kind_of)].parameters;
    for (const int passes : {1, 2, 5})
      CHECK(moved(passes) - moved(0) == passes * 4 * p);
  }
}
