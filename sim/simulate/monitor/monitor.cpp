#include "sim/simulate/monitor/monitor.h"

#include <algorithm>

namespace trainyard::simulate {

namespace {

// Adds what comes after; means are weighed by time.
void append(MonitorSample& sample, const MonitorSample& next) {
  const double before = Seconds(sample.length).count(), more = Seconds(next.length).count();
  const auto mean = [&](double& value, double other) {
    value = (value * before + other * more) / (before + more);
  };
  mean(sample.busy, next.busy);
  mean(sample.kernels, next.kernels);
  mean(sample.multiprocessors, next.multiprocessors);
  mean(sample.memory_controller, next.memory_controller);
  if (sample.watts && next.watts) mean(*sample.watts, *next.watts);
  sample.memory = std::max(sample.memory, next.memory);
  sample.pcie.in += next.pcie.in;
  sample.pcie.out += next.pcie.out;
  sample.links.in += next.links.in;
  sample.links.out += next.links.out;
  sample.celsius = next.celsius;
  sample.length += next.length;
}

}  // namespace

MonitoredRank coarser(const MonitoredRank& rank, std::size_t rows) {
  MonitoredRank result = rank;
  const std::size_t each = (rank.samples.size() + rows - 1) / rows;
  result.samples.clear();
  for (std::size_t s = 0; s < rank.samples.size(); ++s) {
    if (s % each == 0)
      result.samples.push_back(rank.samples[s]);
    else
      append(result.samples.back(), rank.samples[s]);
  }
  return result;
}

}  // namespace trainyard::simulate
