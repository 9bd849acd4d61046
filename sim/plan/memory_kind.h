// What the bytes on a device are for: the kinds of the memory ledger and of every report of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainyard::plan {

// By MemoryEffect::category. Programs hold those that a training script allocates, up to the
// workspace; the rest is what its process holds besides (sim/simulate/device_memory.h).
enum class MemoryKind : std::uint8_t {
  parameters,
  gradients,
  optimizer_state,
  activations,
  logits,
  communication_buffers,
  workspace,
  fragmentation,
  nccl_buffers,
  context
};
inline constexpr std::size_t kMemoryKinds = 10;

// As in JSON: "optimizer_state".
constexpr std::string_view name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameters: return "parameters";
    case MemoryKind::gradients: return "gradients";
    case MemoryKind::optimizer_state: return "optimizer_state";
    case MemoryKind::activations: return "activations";
    case MemoryKind::logits: return "logits";
    case MemoryKind::communication_buffers: return "communication_buffers";
    case MemoryKind::workspace: return "workspace";
    case MemoryKind::fragmentation: return "fragmentation";
    case MemoryKind::nccl_buffers: return "nccl_buffers";
    case MemoryKind::context: return "context";
  }
  return "?";
}

}  // namespace trainyard::plan
