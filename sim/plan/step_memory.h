// Bytes that a rank holds for the whole step: parameters, gradients, optimizer state.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/plan/recipe.h"

namespace trainyard {

struct StateBytes {
  Bytes parameters, gradients, optimizer_state;
};

// Adam with 16-bit compute and gradients and fp32 master weights: 2 + 2 + 12 bytes a parameter;
// with fp32 gradients 2 + 4 + 12 (Megatron-LM's 18). fp32 training keeps no master copy. Source:
// Rajbhandari et al., ZeRO, SC 2020, section 3.1.
StateBytes state_bytes(std::int64_t parameters, const TrainingRecipe& recipe);

// The optimizer's kernel: every state is read and written once, in one fused pass.
MemoryBound optimizer_kernel(std::int64_t parameters, const TrainingRecipe& recipe);

}  // namespace trainyard
