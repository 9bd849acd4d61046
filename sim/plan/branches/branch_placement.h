// Which stage each layer of a network with parallel branches is on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/split/stage_load.h"
#include "sim/recipe/recipe.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// What is wrong with a given placement.
struct PlacementProblem {
  int stage = -1;  // whose list; -1: of all lists together
  int entry = -1;  // of that list; -1: the list as a whole
  std::string message, hint;
};

// By layer: the stage whose list has its name. With problems the result means nothing.
std::vector<int> given_stages(const std::vector<std::string>& layers,
                              const recipe::Branches& branches,
                              std::vector<PlacementProblem>& problems);

// By place of the chain. `gpus`: by stage, or one for all.
//   by_time:   the estimated step is short: layers run in the network's order, forward and backward
//              time of a layer at once, each message as long as both ways take, all micro-batches
//              of a schedule that fills the pipeline up to four. Of equal steps that whose fullest
//              stage holds least.
//   by_memory: the fullest stage, as a share of its memory, holds little; of equal ones the most
//              even, then the shortest. As if what runs again did so layer by layer, and without
//              buffers of communication.
//   given:     as listed.
// Found by search, and not proved to be the best: from each layer on the stage that ends it first
// (Topcuoglu et al., HEFT, IEEE TPDS 13, 2002, section 4.2, with the network's order as priority),
// and from cuts of the order in equal parts, by time and by memory; then runs of 1, 2, 4, ...
// neighbours, and pairs of layers, are moved to other stages while that helps and time is left.
// Requires: as many places as stages; times if placed by them; a given placement without problems.
std::vector<int> place_branches(const models::NetworkWork& work,
                                const schedule::PipelineShape& shape,
                                const recipe::TrainingRecipe& recipe,
                                const recipe::ParallelPlan& plan, std::span<const StageGpus> gpus);

}  // namespace trainyard::plan
