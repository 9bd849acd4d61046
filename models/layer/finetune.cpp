#include "models/layer/finetune.h"

#include "sim/base/check.h"
#include "sim/base/divide.h"

namespace trainyard::models {

std::string_view name(Target target) {
  switch (target) {
    case Target::query: return "q_proj";
    case Target::key: return "k_proj";
    case Target::value: return "v_proj";
    case Target::qkv: return "linear_qkv";
    case Target::output: return "o_proj";
    case Target::gate: return "gate_proj";
    case Target::up: return "up_proj";
    case Target::fc1: return "linear_fc1";
    case Target::fc2: return "down_proj";
  }
  TRAINYARD_CHECK(false, "target {}", static_cast<int>(target));
  return "?";
}

Bytes nf4_bytes(std::int64_t weights, bool double_quantised) {
  constexpr std::int64_t kBlock = 64, kBlocksOfBlocks = 256;
  const std::int64_t blocks = divide_up(weights, kBlock);
  const Bytes single = size_of(Dtype::fp32);
  const Bytes scales = double_quantised
                           ? Bytes(blocks) + divide_up(blocks, kBlocksOfBlocks) * single
                           : blocks * single;
  return Bytes(divide_up(weights, 2)) + scales;
}

}  // namespace trainyard::models
