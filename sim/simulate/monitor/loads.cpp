#include "sim/simulate/monitor/loads.h"

#include <algorithm>

namespace trainyard::simulate {

std::string_view name(Load load) {
  switch (load) {
    case Load::idle: return "idle";
    case Load::product: return "product";
    case Load::attention: return "attention";
    case Load::memory_bound: return "memory_bound";
    case Load::communication: return "communication";
  }
  return "";
}

Watts power(const topologies::GpuSpec& gpu, Load load) {
  const auto stated = [](Watts own, Watts otherwise) { return own > Watts(0) ? own : otherwise; };
  Watts drawn = gpu.busy_power;
  switch (load) {
    case Load::idle: drawn = gpu.idle_power; break;
    case Load::product: break;
    case Load::attention: drawn = stated(gpu.attention_power, gpu.busy_power); break;
    case Load::memory_bound: drawn = stated(gpu.memory_bound_power, gpu.busy_power); break;
    case Load::communication: drawn = stated(gpu.communication_power, gpu.idle_power); break;
  }
  return gpu.power_limit > Watts(0) ? std::min(drawn, gpu.power_limit) : drawn;
}

Load load_of_waiting(TimeCategory category) {
  switch (category) {
    case TimeCategory::exposed_tp:
    case TimeCategory::exposed_cp:
    case TimeCategory::exposed_ep:
    case TimeCategory::exposed_dp:
    case TimeCategory::exposed_pp: return Load::communication;
    default: return Load::idle;
  }
}

LoadTimes with_waiting(LoadTimes kernels, const Breakdown& parts) {
  for (std::size_t c = 0; c < kTimeCategories; ++c) {
    const auto category = static_cast<TimeCategory>(c);
    if (category == TimeCategory::compute || category == TimeCategory::optimizer) continue;
    kernels[static_cast<std::size_t>(load_of_waiting(category))] += parts[c];
  }
  return kernels;
}

double energy(const topologies::GpuSpec& gpu, const LoadTimes& times) {
  double joules = 0;
  for (std::size_t l = 0; l < kLoads; ++l)
    joules += power(gpu, static_cast<Load>(l)).count() * Seconds(times[l]).count();
  return joules;
}

}  // namespace trainyard::simulate
