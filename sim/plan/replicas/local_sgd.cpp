// Replicas train apart for H steps and then meet: the sum of their changes is one step of an outer
// optimizer with momentum (DiLoCo; plain averaging is its special case). A step carries one H-th of
// what the meeting costs, so that it stands for H steps of training. Source: Stich, Local SGD, ICLR
// 2019; Douillard et al., DiLoCo, 2023, algorithm 1.
#include "sim/plan/replicas/data_parallel.h"

namespace trainyard::plan {

DataParallelStrategy local_sgd(const recipe::DataParallelOptions& options,
                               const recipe::TrainingRecipe& recipe, int /*ranks*/) {
  DataParallelStrategy strategy;
  strategy.reduced_as = recipe.precision.gradients;
  strategy.outer_period = options.steps_between;
  return strategy;
}

}  // namespace trainyard::plan
