// How old the parameters are on which gradients were computed, where a parameter server updates
// with each as it comes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trainyard::simulate {

struct UpdateReport {
  double per_s = 0;  // gradients of the whole network that were applied
  // By staleness: how many updates of a shard found so many updates by others since the parameters
  // of their gradient were sent; its last one is not 0. Empty: there was none.
  std::vector<std::int64_t> staleness;

  double mean_staleness() const;
  int most_stale() const { return std::max(0, static_cast<int>(staleness.size()) - 1); }
};

}  // namespace trainyard::simulate
