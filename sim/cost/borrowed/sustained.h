// Laws of products from one measured rate, for GPUs and types that nobody has fitted.
#pragma once

#include <string>
#include <vector>

#include "models/layer/kernel.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {

// What products of 8192 x 8192 x 8192 were measured to reach, in shares of the dense peak.
struct SustainedShare {
  models::Dtype dtype = models::Dtype::fp16;
  double share = 1;
  std::string gpus;  // that it was measured on
};

// Whether products of the type have a law that was fitted to more than one rate.
bool has_fitted_law(const Profile& profile, const MachinePeaks& peaks, models::Dtype dtype);

// A law for each type that the profile has none of: as the law that would stand in for it, but as
// fast as was measured. Source: docs/cost-gemm.md, Sustained shares. Requires: peaks of the types.
void add_sustained(Profile& profile, const MachinePeaks& peaks,
                   const std::vector<SustainedShare>& sustained);

// The same of a profile whose laws are of other GPUs, which give way; attention runs on the same
// units and becomes as much faster or slower as products of 16 bits. Requires: the same.
void take_sustained(Profile& profile, const MachinePeaks& peaks,
                    const std::vector<SustainedShare>& sustained);

}  // namespace trainyard::cost
