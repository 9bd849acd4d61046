// Deals recomputation to the layers of each virtual stage, as RecomputeLayers says.
#pragma once

#include <vector>

#include "models/families/network.h"
#include "sim/plan/split/stage_split.h"

namespace trainyard::plan {

struct RecomputePlaces {
  models::NetworkWork work;  // its chain says which layers recompute
  // By place: those whose recomputation runs just before its backward pass; itself, as a rule.
  std::vector<ChainRange> again;
};

// `ranges`: by virtual stage. Requires: `work` has plain kinds unless the method is `all`.
RecomputePlaces place_recompute(const models::NetworkWork& work,
                                const std::vector<ChainRange>& ranges,
                                const models::RecomputeLayers& layers);

// The same where no layer recomputes. Requires: `work` has plain kinds.
RecomputePlaces without_recompute(const models::NetworkWork& work);

}  // namespace trainyard::plan
