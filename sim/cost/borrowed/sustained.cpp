#include "sim/cost/borrowed/sustained.h"

#include <fmt/format.h>

#include <map>

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

// At which arithmetic alone would take what was measured, so that neither depends on the memory.
double efficiency_at(const GemmLaw& law, double share) {
  return law.tiles ? efficiency_of(*law.tiles, measured_product(law.dtype), share) : share;
}

Provenance origin_of(const SustainedShare& sustained, const GemmLaw& other) {
  Provenance from;
  from.source =
      fmt::format("products of {} on {} (configs/gpus)", name(sustained.dtype), sustained.gpus);
  from.machine = sustained.gpus;
  from.samples = fmt::format("one size, 8192 x 8192 x 8192; others as {} on {}", name(other.dtype),
                             other.from.machine);
  from.residual = "unknown on this GPU";
  from.basis = Basis::extrapolated;
  from.reason = fmt::format("one measured size on {}", sustained.gpus);
  return from;
}

// A law of the type that reaches what was measured.
GemmLaw sustained_law(const GemmLaw& other, const SustainedShare& sustained) {
  GemmLaw law = other;
  law.dtype = sustained.dtype;
  law.residuals.clear();
  law.short_run.reset();
  law.m = law.n = law.k = {};
  law.compute_efficiency = efficiency_at(law, sustained.share);
  law.from = origin_of(sustained, other);
  return law;
}

}  // namespace

bool has_fitted_law(const Profile& profile, const MachinePeaks& peaks, Dtype dtype) {
  const GemmLaw* law = gemm_law(profile, peaks, dtype);
  return law != nullptr && law->from.reason.empty() &&
         (law->dtype == dtype || (is_half(law->dtype) && is_half(dtype)));
}

void add_sustained(Profile& profile, const MachinePeaks& peaks,
                   const std::vector<SustainedShare>& sustained) {
  const Profile fitted = profile;
  for (const SustainedShare& one : sustained) {
    const GemmLaw* other = gemm_law(fitted, peaks, one.dtype);
    if (other != nullptr && !has_fitted_law(fitted, peaks, one.dtype))
      profile.gemm.push_back(sustained_law(*other, one));
  }
}

void take_sustained(Profile& profile, const MachinePeaks& peaks,
                    const std::vector<SustainedShare>& sustained) {
  const Profile fitted = profile;
  std::map<Dtype, double> ratio;  // of products of 16 bits, over what the law had
  for (const SustainedShare& one : sustained) {
    const GemmLaw* other = gemm_law(fitted, peaks, one.dtype);
    if (other == nullptr) continue;
    GemmLaw law = sustained_law(*other, one);
    if (is_half(one.dtype)) ratio[one.dtype] = law.compute_efficiency / other->compute_efficiency;
    std::erase_if(profile.gemm, [&](const GemmLaw& old) { return old.dtype == one.dtype; });
    profile.gemm.push_back(std::move(law));
  }
  if (ratio.empty()) return;
  // The two types of 16 bits run on the same units: one that was not measured is as the other.
  std::erase_if(profile.gemm, [&](const GemmLaw& old) {
    return is_half(old.dtype) && !ratio.contains(old.dtype);
  });
  for (AttentionLaw& law : profile.attention) {
    const auto own = law.dtype ? ratio.find(*law.dtype) : ratio.end();
    const double factor = own != ratio.end() ? own->second : ratio.begin()->second;
    law.forward *= factor;
    law.backward *= factor;
  }
}

}  // namespace trainyard::cost
