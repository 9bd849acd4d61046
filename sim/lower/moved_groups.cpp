#include "sim/lower/moved_groups.h"

#include <algorithm>

namespace trainyard::lower {

// With flows routes matter, and with them the servers themselves.
MovedGroups::MovedGroups(const topologies::ClusterSpec& cluster, const std::vector<int>& players,
                         bool flows)
    : servers_alike_(!flows && gpu_kinds(cluster).size() == 1), slots_(cluster.gpu_slots()) {
  const int most = *std::max_element(players.begin(), players.end());
  servers_alike_ = servers_alike_ && std::all_of(players.begin(), players.end(),
                                                 [&](int own) { return own == most || own == 0; });
}

bool MovedGroups::is_moved(std::span<const int> gpus) {
  if (!servers_alike_) return false;
  const bool comparable = gpus.size() == before_.size() && !gpus.empty();
  const int by = comparable ? gpus.front() - before_.front() : 0;
  const bool moved = comparable && by % slots_ == 0 &&
                     std::equal(gpus.begin(), gpus.end(), before_.begin(),
                                [&](int own, int before) { return own - before == by; });
  if (!moved) before_.assign(gpus.begin(), gpus.end());
  return moved;
}

}  // namespace trainyard::lower
