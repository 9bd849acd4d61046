#include "sim/plan/step_memory.h"

namespace trainyard {
namespace {

bool has_master_copy(const TrainingRecipe& recipe) {
  return recipe.master_weights && size_of(recipe.compute) < size_of(Dtype::fp32);
}

// fp32 numbers that the optimizer itself keeps for each parameter.
std::int64_t moments(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::sgd: return 0;
    case Optimizer::sgd_momentum: return 1;
    case Optimizer::adam: return 2;
  }
  return 0;
}

}  // namespace

StateBytes state_bytes(std::int64_t parameters, const TrainingRecipe& recipe) {
  const std::int64_t single = size_of(Dtype::fp32).count();
  const std::int64_t kept = moments(recipe.optimizer) + (has_master_copy(recipe) ? 1 : 0);
  return {.parameters = parameters * size_of(recipe.compute),
          .gradients = parameters * size_of(recipe.gradients),
          .optimizer_state = Bytes(parameters * kept * single)};
}

MemoryBound optimizer_kernel(std::int64_t parameters, const TrainingRecipe& recipe) {
  const StateBytes state = state_bytes(parameters, recipe);
  const bool master = has_master_copy(recipe);
  return {.op = MemoryOp::optimizer,
          .read = state.gradients + state.optimizer_state + (master ? Bytes(0) : state.parameters),
          .written = state.optimizer_state + state.parameters};
}

}  // namespace trainyard
