#include "sim/simulate/monitor/kernel_loads.h"

#include <algorithm>
#include <variant>

namespace trainyard::simulate {

namespace {

Load load_of(const models::Kernel& kernel) {
  if (std::holds_alternative<models::Attention>(kernel)) return Load::attention;
  if (std::holds_alternative<models::MemoryBound>(kernel)) return Load::memory_bound;
  return Load::product;
}

}  // namespace

KernelLoads::KernelLoads(const plan::Role& role, const plan::Cast& cast,
                         const lower::Lowered& lowered, int gpu_kind)
    : role_(role) {
  for (const models::Kernel& kernel : cast.kernels) {
    loads_.push_back(load_of(kernel));
    bytes_.push_back(models::memory_traffic(kernel).count());
  }
  std::vector<std::int64_t> lengths;
  for (const cost::Estimate& estimate : lowered.kernels[static_cast<std::size_t>(gpu_kind)])
    lengths.push_back(to_duration(estimate.time).count());
  const engine::Program& program = role.program;
  for (const engine::Segment& segment : program.segments) {
    Mix& mix = mixes_.emplace_back();
    for (std::uint32_t k = 0; k < segment.kernels; ++k) {
      const std::uint32_t kernel = program.kernels[segment.first_kernel + k];
      mix.until[static_cast<std::size_t>(loads_[kernel])] += lengths[kernel];
      mix.bytes += bytes_[kernel];
    }
    for (std::size_t l = 1; l < kLoads; ++l)
      mix.until[l] += mix.until[l - 1];
    // Kernels that take no time alone, but are held up.
    if (mix.until.back() == 0) mix.until[static_cast<std::size_t>(Load::product)] = 1;
    for (std::size_t l = 1; l < kLoads; ++l)
      mix.until[l] = std::max(mix.until[l], mix.until[l - 1]);
  }
}

void KernelLoads::add_segment(std::uint32_t segment, const Stretch& op, const Stretch& part,
                              LoadTimes& times) const {
  const Mix& mix = mixes_[segment];
  const Duration whole(mix.until.back());
  Duration before{};
  for (std::size_t l = 0; l < kLoads; ++l) {
    if (l > 0 && mix.until[l] == mix.until[l - 1]) continue;
    const auto until = [&](Duration at) {
      return Duration(share_of((at - op.begin).count(), Duration(mix.until[l]), whole));
    };
    const Duration here = until(part.end) - until(part.begin);
    times[l] += here - before;
    before = here;
  }
}

}  // namespace trainyard::simulate
