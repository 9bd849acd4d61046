// Bytes that a rank holds for its share of the model: parameters, gradients, optimizer state.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/layer/layer_work.h"
#include "sim/base/units.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/recipe/recipe.h"

namespace trainyard::plan {

struct StateBytes {
  Bytes parameters, gradients, optimizer_state;
};

// The type in which weights and gradients of `compute` are stored: fp8 training keeps bf16.
models::Dtype stored_type(models::Dtype compute);

// The type in which weights are kept and gathered; tf32 is one of matrix multiplications only.
models::Dtype weight_type(const recipe::TrainingRecipe& recipe);

// The type in which trained weights are kept: that, or the one that adapters are said to have.
models::Dtype trained_type(const recipe::TrainingRecipe& recipe);

// Bytes of a layer's frozen weights on one rank, of all but routed experts and of those: as
// weight_type() has them, or narrower.
std::array<Bytes, 2> frozen_bytes(const models::FrozenWeights& frozen,
                                  const recipe::TrainingRecipe& recipe);

// The products in fp8 among these kernels; of one in pieces the first.
std::vector<const models::Gemm*> fp8_products(const std::vector<models::WorkItem>& items);

// Bytes of the cached fp8 copies of the weights that these kernels multiply by: Transformer Engine
// keeps one by rows for the forward pass and one by columns for the gradients of inputs, where
// fp8 units want it transposed or its scales are others. 0 unless the recipe caches them.
// Source: Transformer Engine, fp8 primer, and its weight workspaces (is_first_microbatch).
Bytes fp8_copies(const std::vector<models::WorkItem>& forward,
                 const recipe::TrainingRecipe& recipe);

// Kernels that make those copies anew, once a step: 2 bytes of a weight in, its copies out; with
// `current` scaling after a pass that finds the largest of them.
std::vector<models::WorkItem> fp8_refresh(Bytes copies, const recipe::TrainingRecipe& recipe);

// Kernels that add a layer's new gradients, of s bytes, to their sums of g bytes, for P parameters:
// one that reads (s + g) P and writes g P; converted, one that reads s P and writes g P before one
// that adds g P to g P. Of autograd the mean over `microbatches`, the first of which adds nothing,
// but converts if its type is another. Numbers of two types are handled one by one. Nothing where
// products add.
std::vector<models::WorkItem> accumulation_work(std::int64_t parameters,
                                                const recipe::TrainingRecipe& recipe,
                                                int microbatches);

// Gradients in the type of the products that are kept beside their sums until the pass is over.
Bytes unsummed_gradients(std::int64_t parameters, const recipe::TrainingRecipe& recipe);
// One rank's part of `parameters`, padded so that all parts are equal.
std::int64_t shard_of(std::int64_t parameters, int shards);

// Adam with 16-bit compute and gradients and fp32 master weights: 2 + 2 + 12 bytes a parameter;
// with fp32 gradients 2 + 4 + 12 (Megatron-LM's 18), with bf16 moments besides 2 + 4 + 8
// (DeepSeek-V3). fp32 training keeps no master copy. Each part
// is divided by the strategy's shards; with layer units (FSDP) parameters and gradients are the
// optimizer's own, 4 + 4 + 8 in fp32, and gradients are not there all the time.
// Source: Rajbhandari et al., ZeRO, SC 2020, section 3.1; Zhao et al., FSDP, VLDB 2023,
// section 4.4.
StateBytes state_bytes(std::int64_t parameters, const recipe::TrainingRecipe& recipe,
                       const DataParallelStrategy& strategy);

// The optimizer's kernel: every state of this rank is read and written once, in one fused pass.
models::MemoryBound optimizer_kernel(std::int64_t parameters, const recipe::TrainingRecipe& recipe,
                                     const DataParallelStrategy& strategy);

// LAMB in place of that kernel, of P parameters of this rank: the norm of all gradients, unless
// they are clipped by it anyway; the same reads, but of the writes the moments and an fp32 update
// alone; the norms of each array of weights and of updates, 8 P; and a kernel that reads both and
// writes what is left. Source: NVIDIA/apex, optimizers/fused_lamb.py and csrc/multi_tensor_lamb.cu.
std::vector<models::WorkItem> lamb_kernels(const models::MemoryBound& update, std::int64_t own,
                                           const recipe::TrainingRecipe& recipe);

// Whether the optimizer runs in more kernels than that one: PyTorch's fused optimizers want weights
// and gradients of one type, so beside a master copy the gradients are converted to fp32 before and
// the weights from it after.
// Source: torch.optim.AdamW(fused=True), which takes tensors of one dtype per call.
bool converts_for_optimizer(const recipe::TrainingRecipe& recipe,
                            const DataParallelStrategy& strategy);

// Those kernels. Requires: converts_for_optimizer().
std::vector<models::WorkItem> converting_optimizer(std::int64_t parameters,
                                                   const recipe::TrainingRecipe& recipe,
                                                   const DataParallelStrategy& strategy);

// fp32 copies of the gradients that live during that conversion and the step; else nothing.
Bytes optimizer_workspace(std::int64_t parameters, const recipe::TrainingRecipe& recipe,
                          const DataParallelStrategy& strategy);

}  // namespace trainyard::plan
