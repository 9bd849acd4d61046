// The types of a parameter's states against each other and the optimizer.
#include <fmt/format.h>

#include "models/layer/kernel.h"
#include "sim/plan/step_memory.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

using models::Dtype;
using recipe::TrainingRecipe;

namespace {

constexpr const char* kSection = "/training/precision";

void check_parameters(const TrainingRecipe& recipe, Findings& findings) {
  if (!recipe.weights) return;
  const std::string pointer = fmt::format("{}/parameters", kSection);
  TrainingRecipe plain = recipe;
  plain.weights.reset();
  const Dtype natural = plan::weight_type(plain);
  if (*recipe.weights != Dtype::fp8) {
    if (*recipe.weights != natural)
      findings.error(pointer,
                     fmt::format("casting weights from {} to {} in each pass is not described",
                                 name(*recipe.weights), name(natural)),
                     fmt::format("leave it out: weights are {}, and master_weights keeps fp32 ones",
                                 name(natural)));
    return;
  }
  if (recipe.compute != Dtype::fp8)
    findings.error(pointer,
                   fmt::format("weights in fp8 need matrix multiplications in fp8, compute is {}",
                               name(recipe.compute)),
                   fmt::format("set compute to \"fp8\" or remove it"));
  else if (!recipe.master_weights)
    findings.error(pointer, "weights in fp8 are too coarse to be updated without a master copy",
                   "set master_weights to \"fp32\" or \"bf16\"");
}

void check_master(const TrainingRecipe& recipe, Findings& findings) {
  if (!recipe.master_weights || recipe.master_type != Dtype::bf16) return;
  if (models::size_of(plan::weight_type(recipe)) < size_of(recipe.master_type)) return;
  findings.error(fmt::format("{}/master_weights", kSection),
                 fmt::format("a copy in bf16 is no better than the {} weights themselves",
                             name(plan::weight_type(recipe))),
                 "\"fp32\", or \"none\"");
}

void check_cached_weights(const TrainingRecipe& recipe, Findings& findings) {
  if (!recipe.cached_fp8_weights) return;
  const std::string pointer = fmt::format("{}/cached_fp8_weights", kSection);
  if (recipe.compute != Dtype::fp8)
    findings.error(pointer,
                   fmt::format("compute is {}: no weight is cast to fp8", name(recipe.compute)),
                   "remove it");
  else if (plan::weight_type(recipe) == Dtype::fp8)
    findings.error(pointer, "the parameters are kept in fp8 already", "remove it");
}

}  // namespace

void validate_precision(const Scenario& scenario, const PrecisionSection& section,
                        Findings& findings) {
  const TrainingRecipe& recipe = scenario.recipe;
  check_parameters(recipe, findings);
  check_master(recipe, findings);
  check_cached_weights(recipe, findings);
  if (section.optimizer_states && recipe.optimizer == recipe::Optimizer::sgd)
    findings.error(fmt::format("{}/optimizer_states", kSection),
                   "sgd without momentum keeps no state per parameter", "remove it");
}

}  // namespace trainyard::scenario
