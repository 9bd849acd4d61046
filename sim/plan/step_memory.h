// Bytes that a rank holds for its share of the model: parameters, gradients, optimizer state.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/plan/data_parallel.h"
#include "sim/plan/recipe.h"

namespace trainyard {

struct StateBytes {
  Bytes parameters, gradients, optimizer_state;
};

// The type in which weights and gradients of `compute` are stored: fp8 training keeps bf16.
Dtype stored_type(Dtype compute);

// One rank's part of `parameters`, padded so that all parts are equal.
std::int64_t shard_of(std::int64_t parameters, int shards);

// Adam with 16-bit compute and gradients and fp32 master weights: 2 + 2 + 12 bytes a parameter;
// with fp32 gradients 2 + 4 + 12 (Megatron-LM's 18). fp32 training keeps no master copy. Each part
// is divided by the strategy's shards; with layer units (FSDP) parameters and gradients are the
// optimizer's own, 4 + 4 + 8 in fp32, and gradients are not there all the time.
// Source: Rajbhandari et al., ZeRO, SC 2020, section 3.1; Zhao et al., FSDP, VLDB 2023,
// section 4.4.
StateBytes state_bytes(std::int64_t parameters, const TrainingRecipe& recipe,
                       const DataParallelStrategy& strategy);

// The optimizer's kernel: every state of this rank is read and written once, in one fused pass.
MemoryBound optimizer_kernel(std::int64_t parameters, const TrainingRecipe& recipe,
                             const DataParallelStrategy& strategy);

}  // namespace trainyard
