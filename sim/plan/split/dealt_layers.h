// The layers of a network dealt to the stages of a pipeline, cut in their order or placed in any
// way, with what of them runs again.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/plan/branches/placed_network.h"
#include "sim/plan/recompute_places.h"
#include "sim/plan/split/stage_split.h"

namespace trainyard::plan {

// With micro-batches of one size.
struct DealtWork {
  RecomputePlaces placed;
  std::optional<RecomputePlaces> whole;  // of micro-batches that do not run again; none: all do
  std::vector<Crossing> crossings;       // none where layers are cut in their order
};

class DealtLayers {
 public:
  // By the work of micro-batches of one size; `gpus`: of split_layers and place_branches. Requires:
  // as those do. `recipe` must outlive it.
  DealtLayers(const models::NetworkWork& work, const schedule::PipelineShape& shape,
              const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan,
              std::span<const StageGpus> gpus);

  const std::vector<ChainRange>& ranges() const { return ranges_; }  // by virtual stage
  // The same network with micro-batches of any size, dealt so.
  DealtWork deal(const models::NetworkWork& work) const;

 private:
  const recipe::TrainingRecipe& recipe_;
  std::vector<int> stage_of_;  // by place; empty: cut in their order
  std::vector<ChainRange> ranges_;
};

}  // namespace trainyard::plan
