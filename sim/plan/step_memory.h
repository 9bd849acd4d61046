// Bytes that a rank holds for the whole step: parameters, gradients, optimizer state.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layer_work.h"
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

// The optimizer's kernels. By hand: every state is read and written once, in one fused pass.
// PyTorch's fused optimizers want weights and gradients of one type, so beside a master copy the
// gradients are converted to fp32 before and the weights from it after.
// Source: torch.optim.AdamW(fused=True), which takes tensors of one dtype per call.
std::vector<WorkItem> optimizer_work(std::int64_t parameters, const TrainingRecipe& recipe);

// fp32 copies of the gradients that live during that conversion and the step.
Bytes optimizer_workspace(std::int64_t parameters, const TrainingRecipe& recipe);

// Adding a layer's new gradients to those of earlier micro-batches (`accumulates`), or storing them
// in another type than the weights'. By hand it is part of the weight-gradient's matrix
// multiplication, as in Megatron-LM; PyTorch has a kernel for it.
std::vector<WorkItem> accumulation_work(std::int64_t parameters, const TrainingRecipe& recipe,
                                        bool accumulates);

}  // namespace trainyard
