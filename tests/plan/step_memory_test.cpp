// Bytes that optimizers hold and move, per parameter.
#include "sim/plan/step_memory.h"

#include <doctest/doctest.h>

#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

TrainingRecipe small_recipe(Dtype compute, Dtype gradients, bool master, Fusion fusion) {
  TrainingRecipe result;
  result.precision.compute = compute;
  result.precision.gradients = gradients;
  if (!master) result.precision.master_weights = MasterWeights::none;
  result.kernels.fusion = fusion;
  return result;
}

// Bytes read and written per parameter, kernel by kernel.
std::vector<std::pair<std::int64_t, std::int64_t>> moved(const std::vector<WorkItem>& items) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (const WorkItem& item : items) {
    const auto& kernel = std::get<MemoryBound>(std::get<NamedKernel>(item).kernel);
    result.emplace_back(kernel.read.count() / 1000, kernel.written.count() / 1000);
  }
  return result;
}

const DataParallelStrategy kWhole;  // nothing is divided

std::vector<WorkItem> optimizer_work(std::int64_t parameters, const TrainingRecipe& recipe) {
  if (converts_for_optimizer(recipe, kWhole))
    return converting_optimizer(parameters, recipe, kWhole);
  return {NamedKernel{"optimizer step", optimizer_kernel(parameters, recipe, kWhole)}};
}

using Moved = std::vector<std::pair<std::int64_t, std::int64_t>>;
constexpr Dtype kHalf = Dtype::bf16, kSingle = Dtype::fp32;

}  // namespace

TEST_CASE("by hand, Adam is one pass over all states") {
  CHECK(moved(optimizer_work(1000, small_recipe(kHalf, kHalf, true, Fusion::by_hand))) ==
        Moved{{14, 14}});
  CHECK(moved(optimizer_work(1000, small_recipe(kSingle, kSingle, false, Fusion::by_hand))) ==
        Moved{{16, 12}});
}

TEST_CASE("PyTorch's fused Adam converts gradients before it and weights after it") {
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    const TrainingRecipe half = small_recipe(kHalf, kHalf, true, fusion);
    CHECK(moved(optimizer_work(1000, half)) == Moved{{2, 4}, {16, 12}, {4, 2}});
    CHECK(optimizer_workspace(1000, half, kWhole) == Bytes(4000));
    const TrainingRecipe main_gradients = small_recipe(kHalf, kSingle, true, fusion);
    CHECK(moved(optimizer_work(1000, main_gradients)) == Moved{{16, 12}, {4, 2}});
    CHECK(optimizer_workspace(1000, main_gradients, kWhole) == Bytes(0));
    const TrainingRecipe single = small_recipe(kSingle, kSingle, false, fusion);
    CHECK(moved(optimizer_work(1000, single)) == Moved{{16, 12}});
    CHECK(optimizer_workspace(1000, single, kWhole) == Bytes(0));
  }
}

TrainingRecipe summing(Accumulation how, Dtype sums) {
  TrainingRecipe recipe = small_recipe(kHalf, sums, true, Fusion::eager);
  recipe.accumulation = how;
  return recipe;
}

TEST_CASE("a kernel reads a gradient and its sum, and writes the sum") {
  for (const Accumulation how : {Accumulation::kernel, Accumulation::after_pass}) {
    CHECK(moved(accumulation_work(1000, summing(how, kHalf), 1)) == Moved{{4, 2}});
    CHECK(moved(accumulation_work(1000, summing(how, kSingle), 8)) == Moved{{6, 4}});
    CHECK(accumulation_work(0, summing(how, kHalf), 8).empty());
  }
}

TEST_CASE("converted gradients are written and read once more") {
  const TrainingRecipe wide = summing(Accumulation::converted, kSingle);
  CHECK(moved(accumulation_work(1000, wide, 8)) == Moved{{2, 4}, {8, 4}});
  const TrainingRecipe half = summing(Accumulation::converted, kHalf);
  CHECK(moved(accumulation_work(1000, half, 8)) == Moved{{4, 2}});
}

TEST_CASE("products that add leave nothing to a kernel") {
  CHECK(accumulation_work(1000, summing(Accumulation::product, kSingle), 8).empty());
}

// Of four micro-batches three add; the first one's gradients are the sum, in its type.
TEST_CASE("autograd adds from the second micro-batch on") {
  const TrainingRecipe half = summing(Accumulation::autograd, kHalf);
  CHECK(accumulation_work(1000, half, 1).empty());
  CHECK(moved(accumulation_work(4000, half, 4)) == Moved{{12, 6}});
  const TrainingRecipe wide = summing(Accumulation::autograd, kSingle);
  CHECK(moved(accumulation_work(1000, wide, 1)) == Moved{{2, 4}});
  CHECK(moved(accumulation_work(4000, wide, 4)) == Moved{{2, 4}, {18, 12}});
}

TEST_CASE("numbers of two types are added one by one") {
  const auto elements = [](const TrainingRecipe& recipe) {
    std::int64_t sum = 0;
    for (const WorkItem& item : accumulation_work(1000, recipe, 8))
      sum += std::get<MemoryBound>(std::get<NamedKernel>(item).kernel).elements;
    return sum;
  };
  CHECK(elements(summing(Accumulation::kernel, kHalf)) == 0);
  CHECK(elements(summing(Accumulation::kernel, kSingle)) == 1000);
  CHECK(elements(summing(Accumulation::converted, kSingle)) == 1000);
}

TEST_CASE("gradients that wait for the end of the pass are kept beside their sums") {
  for (const Accumulation how : {Accumulation::after_pass, Accumulation::converted}) {
    CHECK(unsummed_gradients(1000, summing(how, kSingle)) == Bytes(2000));
    CHECK(unsummed_gradients(1000, summing(how, kHalf)) == Bytes(0));
  }
  CHECK(unsummed_gradients(1000, summing(Accumulation::kernel, kSingle)) == Bytes(0));
  CHECK(unsummed_gradients(1000, summing(Accumulation::autograd, kSingle)) == Bytes(0));
}
