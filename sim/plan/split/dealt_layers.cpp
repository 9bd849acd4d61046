#include "sim/plan/split/dealt_layers.h"

#include <utility>

#include "sim/plan/branches/branch_placement.h"

namespace trainyard::plan {

using models::NetworkWork;

DealtLayers::DealtLayers(const NetworkWork& work, const schedule::PipelineShape& shape,
                         const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan,
                         std::span<const StageGpus> gpus)
    : recipe_(recipe) {
  if (!plan.pipeline.branches) {
    ranges_ = split_layers(work, shape, recipe, plan, gpus);
    return;
  }
  stage_of_ = place_branches(work, shape, recipe, plan, gpus);
  ranges_ = place_network(work, stage_of_, shape.stages).layers;
}

DealtWork DealtLayers::deal(const NetworkWork& work) const {
  const models::Recomputation& recompute = recipe_.recompute;
  const auto dealt = [&](const NetworkWork& own) {
    DealtWork result{place_recompute(own, ranges_, recompute.layers), {}, {}};
    if (recompute.except_last) result.whole = without_recompute(own);
    return result;
  };
  if (stage_of_.empty()) return dealt(work);
  PlacedNetwork network = place_network(work, stage_of_, static_cast<int>(ranges_.size()));
  DealtWork result = dealt(network.work);
  hold_shared(result.placed, work, stage_of_, network.place_of);
  if (result.whole) hold_shared(*result.whole, work, stage_of_, network.place_of);
  result.crossings = std::move(network.crossings);
  return result;
}

}  // namespace trainyard::plan
