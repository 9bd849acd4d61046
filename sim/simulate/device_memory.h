// What a rank's device holds, in three sums of which each contains the one before:
//
//   allocated  what the training script's tensors take, and the workspace of the matrix library:
//              torch.cuda.max_memory_allocated
//   reserved   and what the framework's allocator keeps beyond it: max_memory_reserved
//   device     and the buffers of NCCL's communicators and the CUDA context, which no allocator
//              sees: what nvidia-smi shows, and what has to fit
//
// Fragmentation is a share of the allocated bytes of the same instant, so that all three are
// largest at one instant. An allocator that is short of room gives a part of what it keeps back to
// the device, so that less is required than is wanted. docs/memory.md says where the default sizes
// come from.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/trace.h"
#include "sim/lower/lower.h"
#include "sim/recipe/recipe.h"
#include "sim/simulate/report/step_report.h"
#include "topologies/cluster.h"

namespace trainyard::simulate {

// The memory of one rank's device. `held` is always what its program holds, and `of` what it
// allocates.
struct DeviceMemory {
  Bytes capacity;  // 0: unlimited
  Bytes blas_workspace, nccl_buffers, context;
  // Of what the allocator has: where there is room, and when it has given back what it can.
  std::int64_t fragmentation_ppm = 0, least_fragmentation_ppm = 0;
  Bytes pools;  // that the allocator keeps for some streams beyond what is held when most is
  // What comes back to it late (memory/late_blocks.h), where there is room: an allocator that is
  // short waits for it.
  Bytes late;
  Bytes lost;  // the part of it that never comes back in time

  Bytes allocated(Bytes held) const { return held + blas_workspace; }

  // On the device: what has to fit, and what there would be with room for everything.
  Bytes required(Bytes held) const;
  Bytes wanted(Bytes held) const;

  // What is required fits, what is wanted does not.
  bool is_tight(Bytes held) const;

  // As much of what is wanted as there is room for, but what is required in any case.
  Bytes on_device(Bytes held) const;
  Bytes reserved(Bytes held) const;

  // The part of on_device() that came back late and need not be there.
  Bytes waited_for(Bytes held) const;

  // The most that a program may hold so that what is wanted fits but for late blocks, as these
  // follow from the step; 1 byte if nothing fits, 0 if there is no limit.
  Bytes budget() const;

  // The device's categories at an instant at which the program holds `held` by its own.
  std::array<std::int64_t, plan::kMemoryKinds> by_category(
      const std::array<std::int64_t, engine::kMaxCategories>& held) const;

  // What this adds to the program's own owners, in the order of the categories.
  struct Part {
    plan::MemoryKind category;
    std::string_view owner;
    Bytes bytes;
  };
  std::array<Part, 4> parts(Bytes held) const;

 private:
  Bytes mapped(Bytes held) const { return allocated(held) + pools; }
  Bytes outside() const { return nccl_buffers + context; }  // of the allocator
  Bytes wanted_but_late(Bytes held) const;
};

// Devices by class. `channels`: by topologies::gpu_kinds those of a collective, as
// NCCL's are; 0: what NCCL takes for the kind of connection.
std::vector<DeviceMemory> device_memory(const plan::Cast& cast,
                                        const lower::DevicePlacement& placement,
                                        std::span<const lower::RankClass> classes,
                                        const topologies::ClusterSpec& cluster,
                                        const recipe::MemoryAllowance& allowance,
                                        std::span<const int> channels);

// NCCL's buffers on one rank of each class: its communicators are the groups it is
// in, each once however many connections use it, and that of its pipeline. `channels`: by class.
std::vector<Bytes> nccl_buffers(const plan::Cast& cast, const lower::DevicePlacement& placement,
                                std::span<const lower::RankClass> classes,
                                std::span<const int> channels);

}  // namespace trainyard::simulate
