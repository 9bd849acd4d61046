// Kernel times by the laws of a profile.
//
//   GEMM         T = t0 + (X^p + Y^p)^(1/p), X = flops / (e P), Y = bytes / (u W)
//   attention    T = t0 + flops / (e_fa P)
//   convolution  the GEMM law with factors on e
//   memory       T = fixed + bytes / (m W)
//
//   Domain: shapes like those a law was fitted on; a law used for another type or kind of kernel is
//   extrapolated and says so, and a kernel without any law is priced by the roofline.
//   Source: docs/cost-gemm.md, docs/cost-attention.md, docs/cost-convolution.md,
//   docs/cost-memory-bound.md; the constants: configs/profiles/*.json.
#include <variant>

#include "sim/base/check.h"
#include "sim/cost/laws.h"
#include "sim/cost/profile.h"

namespace trainyard {
namespace {

bool is_half(Dtype dtype) {
  return dtype == Dtype::fp16 || dtype == Dtype::bf16;
}

// How far apart two rates are, as the ratio of the larger to the smaller.
double apart(FlopsPerSecond a, FlopsPerSecond b) {
  return std::max(a, b).count() / std::min(a, b).count();
}

template <class Law>
struct Chosen {
  const Law* law = nullptr;
  Basis basis = Basis::analytic;
};

// The law of the unit that runs `dtype`: its own, else that of the other 16-bit type (the units are
// the same), else that of the type whose peak is nearest.
template <class Law>
Chosen<Law> choose(const std::vector<Law>& laws, Dtype dtype, const MachinePeaks& peaks) {
  const Dtype unit = unit_for(peaks, dtype);
  const auto rank = [&](const Law& law) {
    if (law.dtype == unit) return 0.0;
    if (is_half(law.dtype) && is_half(unit)) return 0.5;
    return apart(peak(peaks, law.dtype), peak(peaks, unit));  // 1 or more
  };
  const Law* best = nullptr;
  for (const Law& law : laws) {
    if (!best || rank(law) < rank(*best)) best = &law;
  }
  if (!best) return {};
  const bool own = rank(*best) < 1 && unit == dtype;
  return {best, own ? best->from.basis : weaker(best->from.basis, Basis::extrapolated)};
}

class FittedCompute final : public ComputeCost {
 public:
  FittedCompute(const Profile& profile, const MachinePeaks& peaks)
      : profile_(profile), peaks_(peaks), roofline_(roofline_compute_cost(peaks)) {}

  Estimate time(const Kernel& kernel) const override {
    return std::visit([this](const auto& k) { return time_of(k); }, kernel);
  }

 private:
  Estimate time_of(const Gemm& gemm) const;
  Estimate time_of(const Attention& attention) const;
  Estimate time_of(const Convolution& convolution) const;
  Estimate time_of(const MemoryBound& kernel) const;

  // The GEMM law at an efficiency of its own choice.
  Seconds law_time(const GemmLaw& law, Dtype dtype, double efficiency, Flops work,
                   Bytes bytes) const {
    const FlopsPerSecond rate(efficiency * peak(peaks_, dtype).count());
    const BytesPerSecond stream(law.memory_efficiency * peaks_.memory_bandwidth.count());
    return law.fixed + p_norm({work / rate, bytes / stream}, law.exponent);
  }

  Profile profile_;
  MachinePeaks peaks_;
  std::unique_ptr<ComputeCost> roofline_;
};

Estimate FittedCompute::time_of(const Gemm& gemm) const {
  const auto [law, basis] = choose(profile_.gemm, gemm.dtype, peaks_);
  if (!law) return roofline_->time(gemm);
  const bool batched = gemm.batch > 1 && !gemm.grouped;
  const double efficiency =
      law->compute_efficiency * (batched ? profile_.batched_gemm_efficiency : 1);
  const Seconds time = law_time(*law, gemm.dtype, efficiency, flops(gemm), memory_traffic(gemm));
  return {time, batched ? weaker(basis, profile_.batched_gemm_from.basis) : basis};
}

// Without an attention law the kernel is worth the batched GEMM that it fuses.
Estimate FittedCompute::time_of(const Attention& attention) const {
  const auto [law, basis] = choose(profile_.gemm, attention.dtype, peaks_);
  if (!law) return roofline_->time(attention);
  double share = law->compute_efficiency * profile_.batched_gemm_efficiency;
  Basis from = weaker(basis, Basis::extrapolated);
  if (profile_.attention) {
    share = attention.backward ? profile_.attention->backward : profile_.attention->forward;
    from = profile_.attention->from.basis;
  }
  const FlopsPerSecond rate(share * peak(peaks_, attention.dtype).count());
  return {law->fixed + flops(attention) / rate, from};
}

double factor(const ConvolutionLaw& law, const Convolution& c) {
  double factor = law.efficiency;
  if (c.kernel_height == 3 && c.kernel_width == 3) factor *= law.kernel_3x3;
  if (c.in_channels / c.groups < 16) factor *= law.few_channels;
  switch (c.pass) {
    case ConvolutionPass::forward: break;
    case ConvolutionPass::data_gradient: factor *= law.data_gradient; break;
    case ConvolutionPass::weight_gradient: factor *= law.weight_gradient; break;
  }
  return factor;
}

Estimate FittedCompute::time_of(const Convolution& convolution) const {
  const auto [law, basis] = choose(profile_.gemm, convolution.dtype, peaks_);
  if (!law) return roofline_->time(convolution);
  const auto [factors, factors_basis] = choose(profile_.convolution, convolution.dtype, peaks_);
  const double efficiency = law->compute_efficiency * (factors ? factor(*factors, convolution) : 1);
  const Convolution executed = padded(convolution);
  const Seconds time =
      law_time(*law, convolution.dtype, efficiency, flops(executed), memory_traffic(executed));
  return {time, weaker(basis, factors_basis)};
}

Estimate FittedCompute::time_of(const MemoryBound& kernel) const {
  const MemoryLaw* own = nullptr;
  const MemoryLaw* elementwise = nullptr;
  for (const MemoryLaw& law : profile_.memory) {
    if (law.op == kernel.op) own = &law;
    if (law.op == MemoryOp::elementwise) elementwise = &law;
  }
  const MemoryLaw* law = own ? own : elementwise;
  if (!law) return roofline_->time(kernel);
  const Bytes moved = kernel.read + kernel.written;
  const double share = l2_share(moved, peaks_.l2, law->l2_speedup);
  const BytesPerSecond stream(law->efficiency * peaks_.memory_bandwidth.count());
  const bool fitted = own && share == 1;
  return {law->fixed + share * (moved / stream),
          fitted ? law->from.basis : weaker(law->from.basis, Basis::extrapolated)};
}

}  // namespace

std::unique_ptr<ComputeCost> fitted_compute_cost(const Profile& profile,
                                                 const MachinePeaks& peaks) {
  TRAINYARD_CHECK(peaks.memory_bandwidth.count() > 0, "a GPU without memory bandwidth");
  return std::make_unique<FittedCompute>(profile, peaks);
}

}  // namespace trainyard
