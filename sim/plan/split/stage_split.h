// Deals the layers of a network to pipeline stages and chunks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/split/stage_load.h"
#include "sim/recipe/recipe.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// Places [first, last) of NetworkWork::chain.
struct ChainRange {
  int first = 0, last = 0;
  friend bool operator==(const ChainRange&, const ChainRange&) = default;
};

// One range per virtual stage, in forward order: range[chunk * stages + stage]. Places that a split
// does not count (embedding, logits) stay with the divisible place after them, those at the end
// with the last virtual stage.
//   uniform:  equal counts; where they cannot be equal the first virtual stages get one more.
//   balanced: each virtual stage has a divisible place, and the largest sum of forward FLOPs of one
//             is as small as it can be (every place counts). Of such splits one whose fullest
//             virtual stage holds least memory: states, and what stays of the micro-batches that
//             the schedule has there at once. Of those, stages as even as that allows.
//   by_time:  the same with the sum of the times on the GPUs of its stage, in place of FLOPs.
//   by_memory: the fullest virtual stage, as a share of the memory of its stage, holds as little as
//             it can, and of such splits the longest one has least FLOPs.
//   list:     layers_per_chunk says how many divisible places each virtual stage gets, 0 too.
// `gpus`: by stage; one for all; none: stages are alike. Requires: at least as many divisible
// places as virtual stages, or a list of stages * chunks entries that sum to the divisible places;
// times if they are split by them.
std::vector<ChainRange> split_layers(const models::NetworkWork& work,
                                     const schedule::PipelineShape& shape,
                                     const recipe::TrainingRecipe& recipe,
                                     const recipe::ParallelPlan& plan,
                                     std::span<const StageGpus> gpus = {});

// What reports call each place of the chain: its layer's name, or "layer 5" where several places
// have the same kind of layer.
std::vector<std::string> place_names(const models::NetworkWork& work);

}  // namespace trainyard::plan
