#include "sim/lower/device_placement.h"

#include "sim/base/check.h"

namespace trainyard::lower {

DevicePlacement in_order(const plan::Cast& cast, const topologies::ClusterSpec& cluster) {
  DevicePlacement placement;
  placement.reserve(cast.players());
  Device next;
  for (std::size_t player = 0; player < cast.players(); ++player) {
    TRAINYARD_CHECK(next.server < cluster.servers, "{} players on {} servers", cast.players(),
                    cluster.servers);
    placement.push_back(next);
    if (++next.gpu < cluster.server.gpus) continue;
    next = {.server = next.server + 1, .gpu = 0};
  }
  return placement;
}

}  // namespace trainyard::lower
