#include "sim/lower/device_placement.h"

#include "sim/base/check.h"

namespace trainyard::lower {

DevicePlacement in_order(const plan::Cast& cast, const topologies::ClusterSpec& cluster) {
  DevicePlacement placement;
  placement.reserve(cast.players());
  Device next;
  for (std::size_t player = 0; player < cast.players(); ++player) {
    if (const auto host = cast.role(static_cast<plan::Player>(player)).host_server) {
      TRAINYARD_CHECK(*host < cluster.servers, "a player on server {} of {}", *host,
                      cluster.servers);
      placement.push_back({.server = *host, .gpu = Device::kHost});
      continue;
    }
    while (next.server < cluster.servers && next.gpu >= cluster.used_on(next.server))
      next = {.server = next.server + 1, .gpu = 0};
    TRAINYARD_CHECK(next.server < cluster.servers, "{} players on {} servers", cast.players(),
                    cluster.servers);
    placement.push_back(next);
    ++next.gpu;
  }
  return placement;
}

std::vector<int> players_on_gpus(const DevicePlacement& placement, int servers) {
  std::vector<int> players(static_cast<std::size_t>(servers), 0);
  for (const Device& device : placement)
    if (!device.is_host()) ++players[static_cast<std::size_t>(device.server)];
  return players;
}

}  // namespace trainyard::lower
