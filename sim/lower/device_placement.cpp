#include "sim/lower/device_placement.h"

#include "sim/base/check.h"

namespace trainyard::lower {

DevicePlacement in_order(const plan::Cast& cast, const topologies::ClusterSpec& cluster) {
  return in_order(cast, cluster, std::vector<int>(static_cast<std::size_t>(cluster.servers), 0));
}

DevicePlacement in_order(const plan::Cast& cast, const topologies::ClusterSpec& cluster,
                         std::span<const int> taken) {
  DevicePlacement placement;
  placement.reserve(cast.players());
  std::vector<std::size_t> placed(cast.roles.size());  // by role
  Device next;
  for (std::size_t player = 0; player < cast.players(); ++player) {
    const plan::Role& role = cast.role(static_cast<plan::Player>(player));
    if (!role.beside.empty()) {
      const plan::Player rank = role.beside[placed[cast.role_of[player]]++];
      TRAINYARD_CHECK(index(rank) < player, "ranks stand behind players beside them");
      placement.push_back({.server = placement[index(rank)].server, .gpu = Device::kHost});
      continue;
    }
    if (const auto host = role.host_server) {
      TRAINYARD_CHECK(*host < cluster.servers, "a player on server {} of {}", *host,
                      cluster.servers);
      placement.push_back({.server = *host, .gpu = Device::kHost});
      continue;
    }
    while (next.server < cluster.servers && next.gpu >= cluster.used_on(next.server))
      next = {.server = next.server + 1, .gpu = 0};
    TRAINYARD_CHECK(next.server < cluster.servers, "{} players on {} servers", cast.players(),
                    cluster.servers);
    const int before = taken[static_cast<std::size_t>(next.server)];
    placement.push_back({.server = next.server, .gpu = before + next.gpu});
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
