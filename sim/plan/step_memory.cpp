#include "sim/plan/step_memory.h"

#include "models/work_list.h"

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

std::vector<WorkItem> optimizer_work(std::int64_t parameters, const TrainingRecipe& recipe) {
  const StateBytes state = state_bytes(parameters, recipe);
  const bool master = has_master_copy(recipe);
  const Bytes weights = master ? Bytes(0) : state.parameters;
  WorkList list;
  if (!master || recipe.fusion == Fusion::by_hand) {
    list.kernel("optimizer step",
                MemoryBound{.op = MemoryOp::optimizer,
                            .read = state.gradients + state.optimizer_state + weights,
                            .written = state.optimizer_state + state.parameters});
    return list.take();
  }
  const Bytes single = parameters * size_of(Dtype::fp32);
  if (state.gradients != single) {
    list.kernel(
        "gradients to fp32",
        MemoryBound{.op = MemoryOp::elementwise, .read = state.gradients, .written = single});
  }
  list.kernel("optimizer step", MemoryBound{.op = MemoryOp::optimizer,
                                            .read = single + state.optimizer_state,
                                            .written = state.optimizer_state});
  list.kernel(
      "weights from master copy",
      MemoryBound{.op = MemoryOp::elementwise, .read = single, .written = state.parameters});
  return list.take();
}

Bytes optimizer_workspace(std::int64_t parameters, const TrainingRecipe& recipe) {
  if (recipe.fusion == Fusion::by_hand || !has_master_copy(recipe)) return Bytes(0);
  const Bytes single = parameters * size_of(Dtype::fp32);
  return state_bytes(parameters, recipe).gradients == single ? Bytes(0) : single;
}

std::vector<WorkItem> accumulation_work(std::int64_t parameters, const TrainingRecipe& recipe,
                                        bool accumulates) {
  const StateBytes state = state_bytes(parameters, recipe);
  const bool converts = size_of(recipe.gradients) != size_of(recipe.compute);
  WorkList list;
  if (recipe.fusion != Fusion::by_hand && parameters > 0 && (accumulates || converts)) {
    list.kernel("gradient accumulation",
                MemoryBound{.op = MemoryOp::elementwise,
                            .read = state.parameters + (accumulates ? state.gradients : Bytes(0)),
                            .written = state.gradients});
  }
  return list.take();
}

}  // namespace trainyard
