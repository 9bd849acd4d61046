// What the ranks of a server share on their way to the memory of the host and to NVMe.
//
// In closed form all ranks of a server move at once, so each has its even part; with flows each is
// offered all of it and shares the links themselves: its own PCIe cable, which its NIC's messages
// cross too; the uplink of a PCIe switch with several GPUs, in each direction; the host's memory;
// NVMe, in each direction. The last three are no links of the topology and follow them by number.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/host_transfer.h"
#include "sim/base/units.h"
#include "sim/lower/device_placement.h"
#include "topologies/topology.h"

namespace trainyard::lower {

class HostLinks {
 public:
  // `topology`: null without flows. The cluster must outlive this.
  // `players`: by server, how many sit on its GPUs.
  HostLinks(const topologies::ClusterSpec& cluster, const std::vector<int>& players,
            const topologies::Topology* topology);

  // The bandwidth that a player on `device` counts on. Requires: stated in the cluster.
  BytesPerSecond offered(HostTransfer transfer, const Device& device) const;

  // Capacities of the links behind those of the topology, in bytes per second.
  const std::vector<double>& capacities() const { return capacities_; }
  // The links that a transfer of the player on `device` crosses. Requires: flows.
  std::vector<std::uint32_t> path(HostTransfer transfer, const Device& device) const;

 private:
  static int switches(const topologies::ServerSpec& server);  // if they are shared

  const topologies::ClusterSpec& cluster_;
  bool flows_;
  int most_players_;                      // on the GPUs of one server
  std::vector<std::uint32_t> first_;      // by server: its first link behind the topology's
  std::vector<std::uint32_t> up_, down_;  // cables by GPU
  std::vector<double> capacities_;
};

}  // namespace trainyard::lower
