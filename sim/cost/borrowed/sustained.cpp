#include "sim/cost/borrowed/sustained.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/layer/peak.h"
#include "sim/base/power.h"
#include "sim/cost/compute_laws.h"

namespace trainyard::cost {

using models::Dtype;

namespace {

models::Gemm measured_product(Dtype dtype) {
  models::Gemm product;
  product.m = product.n = product.k = 8192;
  product.dtype = dtype;
  return product;
}

// At which the law says of the product what was measured; where it has its memory take longer than
// that, at which arithmetic alone would.
double efficiency_at(const GemmLaw& law, const MachinePeaks& peaks, double share) {
  const models::Gemm product = measured_product(law.dtype);
  const FlopsPerSecond peak = peak_of(peaks, law.dtype);
  const double waves = law.waves ? wave_factor(*law.waves, product) : 1;
  const Seconds work = waves * (models::flops(product) / peak);
  const double measured = (models::flops(product) / peak).count() / share;
  const double longest = measured - law.fixed.count();
  const BytesPerSecond stream(law.memory_efficiency * peaks.memory_bandwidth.count());
  const double memory = (memory_traffic(product) / stream).count();
  if (longest <= memory) return work.count() / measured;
  const double left = 1 - power(memory / longest, law.exponent);
  return work.count() / (longest * power(left, 1 / law.exponent));
}

Provenance measured_on(const SustainedShare& sustained, const GemmLaw& other) {
  Provenance from;
  from.source =
      fmt::format("products of {} on {} (configs/gpus)", name(sustained.dtype), sustained.gpus);
  from.machine = sustained.gpus;
  from.samples = fmt::format("one size, 8192 x 8192 x 8192; others as {} on {}", name(other.dtype),
                             other.from.machine);
  from.residual = "unknown on this GPU";
  from.basis = Basis::extrapolated;
  return from;
}

// A law of the type that reaches what was measured.
GemmLaw sustained_law(const GemmLaw& other, const MachinePeaks& peaks,
                      const SustainedShare& sustained) {
  GemmLaw law = other;
  law.dtype = sustained.dtype;
  law.residuals.clear();
  law.m = law.n = law.k = {};
  law.compute_efficiency = efficiency_at(law, peaks, sustained.share);
  law.from = measured_on(sustained, other);
  return law;
}

}  // namespace

void add_sustained(Profile& profile, const MachinePeaks& peaks,
                   const std::vector<SustainedShare>& sustained) {
  const Profile fitted = profile;
  for (const SustainedShare& one : sustained) {
    const GemmLaw* other = gemm_law(fitted, peaks, one.dtype);
    const bool has_own = other != nullptr && (other->dtype == one.dtype ||
                                              (is_half(other->dtype) && is_half(one.dtype)));
    if (other != nullptr && !has_own) profile.gemm.push_back(sustained_law(*other, peaks, one));
  }
}

void take_sustained(Profile& profile, const MachinePeaks& peaks,
                    const std::vector<SustainedShare>& sustained) {
  const Profile fitted = profile;
  double half_ratio = 1;
  for (const SustainedShare& one : sustained) {
    const GemmLaw* other = gemm_law(fitted, peaks, one.dtype);
    if (other == nullptr) continue;
    GemmLaw law = sustained_law(*other, peaks, one);
    if (is_half(one.dtype)) half_ratio = law.compute_efficiency / other->compute_efficiency;
    std::erase_if(profile.gemm, [&](const GemmLaw& old) { return old.dtype == one.dtype; });
    profile.gemm.push_back(std::move(law));
  }
  for (AttentionLaw& law : profile.attention) {
    law.forward *= half_ratio;
    law.backward *= half_ratio;
  }
}

}  // namespace trainyard::cost
