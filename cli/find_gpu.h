// The preset of a GPU, by its name or by what the driver calls it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/fit.h"

namespace trainyard::cli {

// Throws UsageError if no preset has the name.
std::optional<fit::FitGpu> find_gpu_preset(const std::string& name);

// Nothing if no preset lists the device.
std::optional<fit::FitGpu> find_gpu_of_device(const std::string& device);

// The presets of a compute capability ("9.0"), by name; and that of a preset, empty if it says
// none.
std::vector<fit::FitGpu> gpus_of_capability(const std::string& capability);
std::string capability_of_preset(const std::string& name);

}  // namespace trainyard::cli
