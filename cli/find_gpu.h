// The preset of a GPU, by its name or by what the driver calls it.
#pragma once

#include <optional>
#include <string>

#include "calibrate/fit/fit.h"

namespace trainyard::cli {

// Throws UsageError if no preset has the name.
std::optional<FitGpu> find_gpu_preset(const std::string& name);

// Nothing if no preset fits the device.
std::optional<FitGpu> find_gpu_of_device(const std::string& device);

}  // namespace trainyard::cli
