#include "sim/simulate/report/utilisation.h"

#include <algorithm>
#include <variant>

#include "models/layer/peak.h"
#include "sim/base/check.h"

namespace trainyard::simulate {

namespace {

// Winograd's algorithm computes a 3x3 or 5x5 convolution with up to four times fewer products than
// its FLOPs say, so that it may pass the peak. Source: Lavin and Gray, CVPR 2016.
bool may_pass_peak(const models::Kernel& kernel) {
  const auto* c = std::get_if<models::Convolution>(&kernel);
  return c != nullptr && c->kernel_height == c->kernel_width &&
         (c->kernel_height == 3 || c->kernel_height == 5) && c->dtype == models::Dtype::fp32;
}

}  // namespace

std::optional<FasterThanPeak> find_contradiction(const Job& job, const Step& step,
                                                 const StepReport& report) {
  constexpr double kRounding = 1e-6;
  const double utilisation = std::max(report.mfu, report.hfu);
  if (utilisation <= 1 + kRounding) return std::nullopt;
  FasterThanPeak fastest;
  bool winograd = false;
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  double most = 0;  // of a kernel's rate over the peak of its GPU
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const FlopsPerSecond peak = models::peak_of(*kinds[kind].gpu, job.recipe.precision.compute);
    for (std::size_t k = 0; k < step.lowered.kernels[kind].size(); ++k) {
      const models::Kernel& kernel = step.plan.cast.kernels[k];
      if (may_pass_peak(kernel)) {
        winograd = true;
        continue;
      }
      const double seconds = step.lowered.kernels[kind][k].time.count();
      const double rate = seconds > 0 ? models::flops(kernel).count() / seconds : 0;
      if (rate == 0 || rate / peak.count() <= most) continue;
      most = rate / peak.count();
      fastest = {.kernel = models::to_text(kernel), .reached = FlopsPerSecond(rate), .peak = peak};
    }
  }
  if (winograd && fastest.reached <= fastest.peak) return std::nullopt;
  TRAINYARD_CHECK(fastest.reached > fastest.peak,
                  "utilisation {} although no kernel is faster than {} FLOP/s", utilisation,
                  fastest.peak.count());
  return fastest;
}

}  // namespace trainyard::simulate
