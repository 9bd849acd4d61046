// Which activations are not kept but computed again in the backward pass.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/base/member_set.h"

namespace trainyard::models {

// Inside a layer.
//   selective: the scores of unfused attention. Source: Korthikanti et al. 2022, section 5.
//   full:      all but the layer's input.
//   modules:   those named by RecomputeModules. Source: Megatron-LM core, recompute_modules.
//   operators: PyTorch's selective checkpointing as torchtitan sets it: outputs of every second
//              matrix multiplication, of fused attention and of reduce-scatters are kept beside the
//              layer's input, all else runs again. Source: torchtitan, activation_checkpoint.py,
//              the policy of `selective_ac_option = "op"`.
enum class Recompute : std::uint8_t { none, selective, full, modules, operators };
std::string_view name(Recompute recompute);  // "none", "selective", "full", "modules", ...

// Megatron-LM's names. core_attn, mlp, moe and shared_experts are checkpointed: their inputs stay,
// and they run again, whole, before their own backward pass. layernorm, moe_act and mla_up_proj
// give up their outputs instead, which come back before the backward pass of what reads them.
enum class RecomputeModule : std::uint8_t {
  core_attn,
  mlp,
  moe,
  moe_act,
  shared_experts,
  layernorm,
  mla_up_proj,
};
std::string_view name(RecomputeModule module);  // "core_attn"

using RecomputeModules = MemberSet<RecomputeModule>;

// Which layers of a stage (with interleaving: of each of its chunks) recompute at all.
//   all:     every one.
//   block:   the first `layers`. Source: Megatron-LM, recompute_method block.
//   uniform: every one, `layers` together: only the first one's input is kept, and all of a group
//            run again before the backward pass of its last. Source: recompute_method uniform.
//   every:   each `layers`-th. Source: torchtitan, selective_ac_option with a number.
struct RecomputeLayers {
  enum class Method : std::uint8_t { all, block, uniform, every };
  Method method = Method::all;
  int layers = 1;
  friend bool operator==(const RecomputeLayers&, const RecomputeLayers&) = default;
};

}  // namespace trainyard::models
