// What the GPUs of a kind take for their kernels, and for copies of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layer/kernel.h"
#include "sim/base/units.h"
#include "sim/cost/cost.h"
#include "sim/cost/host_copies.h"

namespace trainyard::lower {

struct GpuLaws {
  const cost::ComputeCost* compute = nullptr;
  Duration launch{};  // host time per kernel launch
  Duration call{};    // the same where the host runs the kernel itself, which begins after it
  // How much kernels mind multiprocessors that communication holds; 1: in proportion.
  double gemm_weight = 1, memory_bound_weight = 1;
  std::vector<cost::HostCopyLaw> host_copies{};  // of the profile
};

// KernelTimes::weight of the kernels; nothing if all are alike.
std::vector<std::uint16_t> kernel_weights(const GpuLaws& laws,
                                          const std::vector<models::Kernel>& kernels);

}  // namespace trainyard::lower
