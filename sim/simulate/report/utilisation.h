// Utilisation above 1 is impossible: somebody is wrong, and it is said who.
#pragma once

#include <optional>
#include <string>

#include "sim/base/units.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// A kernel that is predicted faster than the peak by which utilisation is counted.
struct FasterThanPeak {
  std::string kernel;  // "gemm bf16 4096x4096x4096"
  FlopsPerSecond reached, peak;
};

// The fastest one. A step is beyond its peak only if one of its kernels is, so where this finds
// nothing a utilisation above 1 is a mistake of ours, and is checked. Empty if no utilisation of
// the report is above 1, apart from times rounded to picoseconds.
std::optional<FasterThanPeak> find_contradiction(const Job& job, const Step& step,
                                                 const StepReport& report);

}  // namespace trainyard::simulate
