#include "sim/lower/moved_groups.h"

#include <algorithm>
#include <utility>

namespace trainyard::lower {

// With flows routes matter, and with them the servers themselves.
MovedGroups::MovedGroups(const topologies::ClusterSpec& cluster, const std::vector<int>& players,
                         bool flows)
    : servers_alike_(!flows && gpu_kinds(cluster).size() == 1), slots_(cluster.gpu_slots()) {
  const int most = *std::max_element(players.begin(), players.end());
  servers_alike_ = servers_alike_ && std::all_of(players.begin(), players.end(),
                                                 [&](int own) { return own == most || own == 0; });
}

std::optional<std::uint32_t> MovedGroups::find(std::span<const int> gpus, int crossing) {
  asked_ = nullptr;
  if (!servers_alike_ || gpus.front() < 0) return std::nullopt;
  known_.resize(static_cast<std::size_t>(slots_));
  Known& known = known_[static_cast<std::size_t>(gpus.front() % slots_)];
  const auto is_moved = [&] {
    if (gpus.size() != known.gpus.size() || crossing != known.crossing) return false;
    const int by = gpus.front() - known.gpus.front();
    return std::equal(gpus.begin(), gpus.end(), known.gpus.begin(),
                      [&](int own, int before) { return own - before == by; });
  };
  if (is_moved()) return known.what;
  known.gpus.assign(gpus.begin(), gpus.end());
  known.crossing = crossing;
  asked_ = &known;
  return std::nullopt;
}

std::uint32_t MovedGroups::learn(std::uint32_t what) {
  if (asked_ != nullptr) std::exchange(asked_, nullptr)->what = what;
  return what;
}

}  // namespace trainyard::lower
