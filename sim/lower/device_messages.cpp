#include "sim/lower/device_messages.h"

#include <algorithm>

#include "sim/lower/flows/flow_paths.h"
#include "topologies/server_board.h"

namespace trainyard::lower {

using plan::Player;

DeviceMessages::Crossing DeviceMessages::crossing(const plan::Connection& connection,
                                                  const DevicePlacement& placement) const {
  Crossing crossing;
  crossing.leaving.assign(static_cast<std::size_t>(cluster_.servers), 0);
  crossing.arriving = crossing.leaving;
  std::vector<int> counted(placement.size(), 0);
  for (std::size_t pair = 0; pair < connection.groups.size(); ++pair) {
    const Player source = connection.groups[pair][0], destination = connection.groups[pair][1];
    const int from = placement[index(source)].server, to = placement[index(destination)].server;
    if (from == to || counted[index(source)] == connection.at_once) continue;
    ++counted[index(source)];
    ++crossing.leaving[static_cast<std::size_t>(from)];
    ++crossing.arriving[static_cast<std::size_t>(to)];
  }
  return crossing;
}

Device DeviceMessages::like(const Device& device, const Device& host) const {
  const int last = cluster_.server_at(host.server).gpus - 1;
  return {.server = host.server, .gpu = std::min(device.gpu, last)};
}

cost::GroupShape DeviceMessages::shape(Device from, Device to, const Crossing& crossing) {
  int beside = crossing.leaving[static_cast<std::size_t>(from.server)];
  if (!from.is_host() && !to.is_host()) return shapes_.of_pair(gpu(from), gpu(to), beside);
  if (from.server == to.server) {
    cost::GroupShape shape;
    shape.ranks = shape.ranks_per_server = 2;
    shape.servers = 1;
    if (from.is_host() && to.is_host()) {
      shape.intra_bandwidth = hosts_.offered(HostTransfer::host_memory, from);
      return shape;
    }
    const topologies::ServerSpec& server = cluster_.server_at(from.server);
    shape.intra_bandwidth =
        to.is_host() ? hosts_.offered(HostTransfer::to_host, from) : peer_pcie_bandwidth(server);
    shape.intra_latency = server.intra_latency;
    return shape;
  }
  if (to.is_host()) {
    beside = std::max(beside, crossing.arriving[static_cast<std::size_t>(to.server)]);
    to = like(from, to);
  } else {
    from = like(to, from);
  }
  return shapes_.of_pair(gpu(from), gpu(to), beside);
}

std::vector<std::uint32_t> DeviceMessages::links(const Device& from, const Device& to) const {
  const auto on_host = [this](HostTransfer transfer, const Device& device) {
    return in_stripes(hosts_.path(transfer, device), topologies::stripes(cluster_));
  };
  if (from.server == to.server && from.is_host() && to.is_host())
    return on_host(HostTransfer::host_memory, from);
  if (from.server == to.server && from.is_host()) return on_host(HostTransfer::to_device, to);
  if (from.server == to.server && to.is_host()) return on_host(HostTransfer::to_host, from);
  const Device source = from.is_host() ? like(to, from) : from;
  const Device destination = to.is_host() ? like(from, to) : to;
  return route_links(*topology_, gpu(source), gpu(destination), {from.is_host(), to.is_host()});
}

}  // namespace trainyard::lower
