// GPUs as people name them, "8xh100", as the /cluster of a scenario.
#pragma once

#include <string>

#include "sim/json/value.h"

namespace trainyard::cli {

struct NamedGpus {
  int count = 1;
  std::string gpu;  // preset
  // Servers of a shipped preset, behind the fabric of a shipped cluster; one server with all of
  // them where the preset has PCIe and no NICs.
  json::Value cluster;
};

// "8xh100", "64xa100-80gb", "2x4090", "16 x h100-sxm5-80gb". Throws UsageError with the cure: a
// count that fills no whole servers, a name that several GPUs have, or none.
NamedGpus named_gpus(const std::string& words);

}  // namespace trainyard::cli
