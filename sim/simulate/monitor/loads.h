// What a GPU draws power for: every picosecond of a step is one of a few loads, and each load has
// its power. The one source of energy for steps, trainings and samples of a monitor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/base/units.h"
#include "sim/simulate/report/step_report.h"
#include "topologies/cluster.h"

namespace trainyard::simulate {

enum class Load : std::uint8_t {
  idle,           // nothing runs, or what runs only waits
  product,        // matrix products, convolutions, and kernels of which only the time is known
  attention,      // fused attention
  memory_bound,   // kernels that memory sets the pace of
  communication,  // a transfer that the compute stream waits for moves, and no kernel runs
};
inline constexpr std::size_t kLoads = 5;
std::string_view name(Load load);  // as in JSON: "memory_bound"

using LoadTimes = std::array<Duration, kLoads>;

// Power of the board under a load; at most its limit. 0 if its power is not known.
Watts power(const topologies::GpuSpec& gpu, Load load);

// `kernels`, which sum to compute and optimizer of `parts`, and the rest of the step: exposed
// communication between GPUs is communication, all else idle.
LoadTimes with_waiting(LoadTimes kernels, const Breakdown& parts);

// What part of a step that belongs to a category other than kernels draws power for.
Load load_of_waiting(TimeCategory category);

// Joules of one GPU.
double energy(const topologies::GpuSpec& gpu, const LoadTimes& times);

}  // namespace trainyard::simulate
