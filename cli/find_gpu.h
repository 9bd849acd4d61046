// The preset of a GPU, by its name or by what the driver calls it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/fit/fit.h"

namespace trainyard::cli {

// The preset that people call so: "a100-40gb" is a100-sxm4-40gb, "4090" is rtx-4090; empty if there
// is none. Throws UsageError that names them if there are several; `option` is where it was said.
std::string gpu_called(const std::string& name, std::string_view option);

// Throws UsageError if no preset is called so.
std::optional<fit::FitGpu> find_gpu_preset(const std::string& name);

// Nothing if no preset lists the device.
std::optional<fit::FitGpu> find_gpu_of_device(const std::string& device);

std::vector<std::string> gpu_preset_names();

// The presets of a compute capability ("9.0"), by name; and that of a preset, empty if it says
// none.
std::vector<fit::FitGpu> gpus_of_capability(const std::string& capability);
std::string capability_of_preset(const std::string& name);

// Of a GPU's slot, as its preset says; 0: it says none. Throws ScenarioError if the preset is
// wrong.
BytesPerSecond slot_of_preset(const std::string& name);

// Whether the preset describes a GeForce.
bool is_geforce(const std::string& name);

}  // namespace trainyard::cli
