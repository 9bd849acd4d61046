#include "sim/lower/gpu_laws.h"

#include <variant>

#include "sim/base/check.h"
#include "sim/engine/machine.h"

namespace trainyard::lower {

std::vector<std::uint16_t> kernel_weights(const GpuLaws& laws,
                                          const std::vector<models::Kernel>& kernels) {
  if (laws.gemm_weight == 1 && laws.memory_bound_weight == 1) return {};
  std::vector<std::uint16_t> weights;
  for (const models::Kernel& kernel : kernels) {
    const bool memory_bound = std::holds_alternative<models::MemoryBound>(kernel);
    const double weight = memory_bound ? laws.memory_bound_weight : laws.gemm_weight;
    TRAINYARD_CHECK(weight >= 0 && weight <= 8, "a kernel of weight {}", weight);
    weights.push_back(static_cast<std::uint16_t>(weight * engine::kFullWeight + 0.5));
  }
  return weights;
}

}  // namespace trainyard::lower
