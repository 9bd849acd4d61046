// What the GPUs of one kind do of a step, where there are several.
#pragma once

#include <cstdint>
#include <string>

#include "sim/base/units.h"

namespace trainyard::simulate {

struct GpuShare {
  std::string name;
  int ranks = 0;
  std::int64_t least_batch = 0, most_batch = 0;  // samples of a micro-batch
  double busy = 0;                               // share of the step in which kernels run
  Bytes memory{}, capacity{};                    // of the fullest of them
};

// "1 rank, micro-batch 41, computes 97.4 %, holds 3.56 GiB of 11.0 GiB".
std::string describe(const GpuShare& share);

}  // namespace trainyard::simulate
