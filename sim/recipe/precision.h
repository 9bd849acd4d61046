// Number formats of training: what a scenario says under /training/precision.
#pragma once

#include <cstdint>
#include <optional>

#include "models/layer/fp8.h"
#include "models/layer/kernel.h"
#include "sim/base/option.h"

namespace trainyard::recipe {

// The optimizer's own copy of narrower weights. remainder: the 16 bits that bf16 weights lack of
// fp32 ones. Source: NVIDIA/apex, distributed_fused_adam.py, store_param_remainders.
enum class MasterWeights : std::uint8_t { none, fp32, bf16, remainder };

// Among which ranks the largest numbers that delayed scales come from are reduced after each pass:
// none, those of a replica's stage (tensor and context parallelism), or all of a stage's. Source:
// Transformer Engine, pytorch/fp8.py, FP8GlobalStateManager.reduce_and_update_fp8_tensors;
// Megatron-Core, parallel_state.get_amax_reduction_group.
enum class AmaxReduction : std::uint8_t { none, replica, stage };

struct Precision {
  // Of matrix multiplications; a scenario: the best that the GPU has.
  Option<models::Dtype> compute = depends(models::Dtype::bf16);
  std::optional<models::Dtype> parameters{};  // empty: plan::stored_type(compute)
  // Kept and reduced; a scenario: as stored.
  Option<models::Dtype> gradients = depends(models::Dtype::bf16);
  Option<MasterWeights> master_weights = MasterWeights::fp32;
  Option<models::Dtype> optimizer_states = models::Dtype::fp32;  // of the optimizer's moments
  // fp8 compute: weights of matrix multiplications are kept in fp8 too, by rows and by columns,
  // instead of being cast in each pass.
  bool cached_fp8_weights = false;
  // fp8 compute: inputs of these products are kept for the gradients of their weights, and gathered
  // with sequence parallelism, in fp8; a scenario: where kernels are fused by hand.
  Option<bool> kept_fp8_inputs = depends(false);
  // What SwiGLU reads is kept for its gradient in fp8.
  bool kept_fp8_gates = false;
  // fp8 compute: how operands get their scales; a scenario: delayed where kernels are fused by
  // hand, else current.
  std::optional<models::Fp8Recipe> fp8_recipe{};
  AmaxReduction fp8_amax_reduction = AmaxReduction::none;
  // fp8 compute: operands that are scaled whole are transposed too; a scenario: before compute
  // capability 10, whose products read columns as well.
  Option<bool> fp8_transposes = depends(true);

  models::Fp8Recipe scales() const { return fp8_recipe.value_or(models::Fp8Recipe::current); }
  // torch.autocast: fp32 weights, of which products of 16 bits read copies.
  bool autocasts() const {
    return parameters == models::Dtype::fp32 &&
           (compute == models::Dtype::bf16 || compute == models::Dtype::fp16);
  }
  // 16-bit compute and below only.
  bool keeps_master() const {
    return master_weights != MasterWeights::none && !autocasts() &&
           size_of(compute) < size_of(models::Dtype::fp32);
  }
  // Of the master copy: all of a weight, not what the weight itself lacks of it.
  bool keeps_whole_master() const {
    return keeps_master() && master_weights != MasterWeights::remainder;
  }
  Bytes master_bytes() const {  // of a parameter
    return size_of(master_weights == MasterWeights::fp32 ? models::Dtype::fp32
                                                         : models::Dtype::bf16);
  }
};

}  // namespace trainyard::recipe
