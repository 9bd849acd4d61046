// What leaves the GPU for the memory of its host or for NVMe: what a scenario says under
// /training/offload, and what a rank then holds there. docs/offload.md has the streams and
// formulas.
#pragma once

#include <cstdint>

#include "sim/base/option.h"
#include "sim/base/units.h"

namespace trainyard::recipe {

enum class OffloadTo : std::uint8_t { none, cpu, nvme };

struct OffloadOptions {
  // Optimizer states, which the host then updates; gradients go to the host for it.
  OffloadTo optimizer = OffloadTo::none;
  // The shards of parameters between the gathers of ZeRO-3 and FSDP.
  OffloadTo parameters = OffloadTo::none;
  bool activations = false;
  Option<double> fraction = 1;  // of the layers of a chunk, its first ones, whose activations go
  Option<int> prefetch_layers =
      1;  // layers whose activations are on their way beside the one in work
  // Parameters that the host updates at a time: while the next tile is updated the last is copied.
  // Source: DeepSpeed, csrc/includes/cpu_adam.h (TILE).
  Option<std::int64_t> tile_parameters = std::int64_t{128} << 20;

  bool any() const {
    return optimizer != OffloadTo::none || parameters != OffloadTo::none || activations;
  }
};
inline constexpr int kMostActivationPrefetch = 1;

// What one rank holds outside its GPU; activations at their most.
struct HostMemory {
  Bytes parameters, gradients, optimizer_state, activations;
  Bytes buffers;  // through which NVMe is read and written
  Bytes nvme;     // on NVMe, not in memory
  Bytes memory() const { return parameters + gradients + optimizer_state + activations + buffers; }
};

}  // namespace trainyard::recipe
