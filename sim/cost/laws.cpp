#include "sim/cost/laws.h"

#include <array>

#include "sim/base/check.h"
#include "sim/base/power.h"

namespace trainyard {
namespace {

// Below this the smaller demand adds less than 1e-15 of the larger at any p >= 1.
constexpr double kNegligible = 1e-15;

std::int64_t padded(std::int64_t channels, const Convolution& convolution) {
  const bool pads = convolution.groups == 1 && size_of(convolution.dtype) <= Bytes(2);
  return pads ? (channels + 7) / 8 * 8 : channels;
}

FlopsPerSecond peak_of(const MachinePeaks& peaks, Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32: return peaks.fp32;
    case Dtype::tf32: return peaks.tf32;
    case Dtype::bf16: return peaks.bf16;
    case Dtype::fp16: return peaks.fp16;
    case Dtype::fp8: return peaks.fp8;
  }
  return {};
}

}  // namespace

Seconds p_norm(Demand demand, double p) {
  const double low = std::min(demand.compute, demand.memory).count();
  const double high = std::max(demand.compute, demand.memory).count();
  TRAINYARD_CHECK(low >= 0, "a demand of {} s", low);
  TRAINYARD_CHECK(p >= 1 && p <= 8, "p-norm with p = {}", p);
  if (low <= high * kNegligible) return Seconds(high);
  return Seconds(high * power(1 + power(low / high, p), 1 / p));
}

Dtype unit_for(const MachinePeaks& peaks, Dtype dtype) {
  // Wider and wider from the asked type on; fp8 tries both 16-bit types.
  constexpr std::array kWider = {Dtype::fp8, Dtype::fp16, Dtype::bf16, Dtype::tf32, Dtype::fp32};
  if (peak_of(peaks, dtype).count() > 0) return dtype;
  for (auto wider = std::find(kWider.begin(), kWider.end(), dtype); wider != kWider.end();
       ++wider) {
    const bool other_half = dtype == Dtype::fp16 && *wider == Dtype::bf16;
    if (!other_half && peak_of(peaks, *wider).count() > 0) return *wider;
  }
  TRAINYARD_CHECK(false, "this GPU has no unit for {}", name(dtype));
}

FlopsPerSecond peak(const MachinePeaks& peaks, Dtype dtype) {
  return peak_of(peaks, unit_for(peaks, dtype));
}

double l2_share(Bytes moved, Bytes l2, double l2_speedup) {
  if (l2.count() <= 0 || moved >= 2 * l2) return 1;
  const double inside = 1 / l2_speedup;
  if (moved <= l2) return inside;
  const double along = static_cast<double>((moved - l2).count()) / static_cast<double>(l2.count());
  return inside + along * (1 - inside);
}

ConvolutionDemand demand(const Convolution& c) {
  const std::int64_t in = padded(c.in_channels, c);
  const std::int64_t out = padded(c.out_channels, c);
  const std::int64_t pixels_in = c.batch * c.in_height * c.in_width;
  const std::int64_t pixels_out = c.batch * c.out_height * c.out_width;
  const std::int64_t weights = in / c.groups * out * c.kernel_height * c.kernel_width;
  // All three passes multiply every weight with every output pixel once. The data gradient as a
  // GEMM over input pixels would count stride^2 times as much, which strided kernels do not
  // execute.
  const double work = 2.0 * static_cast<double>(pixels_out) * static_cast<double>(weights);
  return {Flops(work),
          size_of(c.dtype).count() * Bytes(pixels_in * in + pixels_out * out + weights)};
}

Flops executed_flops(const Attention& a) {
  const double scores = static_cast<double>(a.batch * a.heads) *
                        static_cast<double>(a.query_length) * static_cast<double>(a.key_length);
  const double forward = 4 * scores * static_cast<double>(a.head_size) * (a.causal ? 0.5 : 1);
  return Flops(a.backward ? 2.5 * forward : forward);
}

}  // namespace trainyard
