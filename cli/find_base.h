// The profile that gives a fit what its samples cannot.
#pragma once

#include <optional>
#include <string>

#include "calibrate/fit/fit.h"

namespace trainyard::cli {

// `wanted`: "none"; "kind": the medians of the fitted GPUs of its kind (gpu_origin.h); "auto": the
// profile of configs/profiles for this GPU, else for the GPU nearest to it of the same compute
// capability; else a name of configs/profiles or a path. `measured` is the capability that the
// samples say, for a GPU without a preset; may be empty. Throws UsageError if there is no such
// profile, and ScenarioError if it is wrong.
std::optional<cost::Profile> find_base(const std::string& wanted, const fit::FitGpu& gpu,
                                       const std::string& measured);

}  // namespace trainyard::cli
