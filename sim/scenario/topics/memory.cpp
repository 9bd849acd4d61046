// What a device holds beside tensors, by default. Sources: docs/memory.md, "Beside the tensors".
#include <charconv>
#include <string>

#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {
namespace {

using namespace literals;

constexpr Bytes kContext = 512_MiB;
constexpr double kFragmentation = 0.02;

// PyTorch's CUBLAS_WORKSPACE_CONFIG: ":4096:2:16:8" in KiB, from Hopper on 32 MiB.
// Source: aten/src/ATen/cuda/CublasHandlePool.cpp; NVIDIA cuBLAS documentation, cublasSetWorkspace.
Bytes blas_workspace(const topologies::GpuSpec& gpu) {
  constexpr int kHopper = 9;
  const std::string& capability = gpu.compute_capability;
  int major = 0;
  std::from_chars(capability.data(), capability.data() + capability.size(), major);
  return major >= kHopper ? 32_MiB : Bytes((4096 * 2 + 16 * 8) * 1024);
}

}  // namespace

recipe::MemoryAllowance assemble_memory(const MemorySection& section,
                                        const topologies::GpuSpec& gpu) {
  return {.context = section.context.value_or(kContext),
          .fragmentation = section.fragmentation.value_or(kFragmentation),
          .blas_workspace = section.blas_workspace.value_or(blas_workspace(gpu)),
          .nccl_buffers = section.nccl_buffers};
}

}  // namespace trainyard::scenario
