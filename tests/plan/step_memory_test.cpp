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

TEST_CASE("gradients are added by a kernel where they were kept or change their type") {
  const TrainingRecipe half = small_recipe(kHalf, kHalf, true, Fusion::eager);
  CHECK(accumulation_work(1000, half, false).empty());
  CHECK(moved(accumulation_work(1000, half, true)) == Moved{{4, 2}});
  const TrainingRecipe wide = small_recipe(kHalf, kSingle, true, Fusion::eager);
  CHECK(moved(accumulation_work(1000, wide, false)) == Moved{{2, 4}});
  CHECK(moved(accumulation_work(1000, wide, true)) == Moved{{6, 4}});
  CHECK(accumulation_work(0, half, true).empty());
  CHECK(accumulation_work(1000, small_recipe(kHalf, kSingle, true, Fusion::by_hand), true).empty());
}
