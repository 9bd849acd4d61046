// Where the players of a cast sit in a cluster: a value beside both, so that a job may use a part
// of its servers and several jobs one cluster.
#pragma once

#include <compare>
#include <span>
#include <vector>

#include "sim/plan/cast.h"
#include "topologies/cluster.h"

namespace trainyard::lower {

// A GPU of a server, or the processors of a server with its memory.
struct Device {
  static constexpr int kHost = -1;
  int server = 0;
  int gpu = 0;  // of the server; kHost: its processors

  bool is_host() const { return gpu == kHost; }
  auto operator<=>(const Device&) const = default;
};

using DevicePlacement = std::vector<Device>;  // by player

// Rank r on the r-th GPU that is in use, server after server, as torchrun numbers them; players
// that need no GPU on the processors of the first server. Requires: as many GPUs in use as ranks.
DevicePlacement in_order(const plan::Cast& cast, const topologies::ClusterSpec& cluster);

// The same where by server the first GPUs are taken; those in use follow them. Requires: GPUs that
// the servers have.
DevicePlacement in_order(const plan::Cast& cast, const topologies::ClusterSpec& cluster,
                         std::span<const int> taken);

// How many players sit on the GPUs of each server.
std::vector<int> players_on_gpus(const DevicePlacement& placement, int servers);

}  // namespace trainyard::lower
