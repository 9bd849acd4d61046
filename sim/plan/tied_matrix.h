// A matrix that several places of a network share (the embedding, tied logits): a rank that holds
// more than one of them has it once.
#pragma once

#include <cstdint>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/step_plan.h"

namespace trainyard::plan {

// Parameters of the matrix at `place` if an earlier place, or a later one, of the same stage uses
// it too; else 0. Requires: step.shape and step.layers are set.
std::int64_t tied_with_earlier(const StepPlan& step, const models::NetworkWork& work, int place);
std::int64_t tied_with_later(const StepPlan& step, const models::NetworkWork& work, int place);

// Frozen weights at `place`, without a matrix that an earlier place of the same stage has.
models::FrozenWeights own_frozen(const StepPlan& step, const models::NetworkWork& work, int place);

// The matrices whose gradients `place` is the one to reduce: without one that tied_with_earlier().
std::vector<models::WeightMatrix> own_matrices(const StepPlan& step,
                                               const models::NetworkWork& work, int place);

}  // namespace trainyard::plan
