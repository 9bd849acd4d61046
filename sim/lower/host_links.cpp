#include "sim/lower/host_links.h"

#include <algorithm>

#include "sim/base/check.h"
#include "topologies/server_board.h"

namespace trainyard::lower {

using topologies::ServerSpec;

namespace {

BytesPerSecond whole(const ServerSpec& server, HostTransfer transfer) {
  switch (transfer) {
    case HostTransfer::to_host:
    case HostTransfer::to_device: return peer_pcie_bandwidth(server);
    case HostTransfer::host_memory: return server.host_memory_bandwidth;
    case HostTransfer::nvme_read: return server.nvme_read_bandwidth;
    case HostTransfer::nvme_write: return server.nvme_write_bandwidth;
  }
  return {};
}

}  // namespace

HostLinks::HostLinks(const topologies::ClusterSpec& cluster, const std::vector<int>& players,
                     const topologies::Topology* topology)
    : cluster_(cluster),
      flows_(topology != nullptr),
      most_players_(std::max(1, *std::max_element(players.begin(), players.end()))) {
  if (!flows_) return;
  const auto gpus = static_cast<std::size_t>(topology->gpus());
  up_.resize(gpus);
  down_.resize(gpus);
  for (std::size_t l = 0; l < topology->links().size(); ++l) {
    const topologies::Link& link = topology->links()[static_cast<LinkId>(l)];
    if (link.kind != topologies::LinkKind::pcie) continue;
    const topologies::Node &from = topology->nodes()[link.from], &to = topology->nodes()[link.to];
    const auto gpu = [&](const topologies::Node& node) {
      return static_cast<std::size_t>(node.server * cluster.gpu_slots() + node.local);
    };
    if (from.kind == topologies::NodeKind::gpu) up_[gpu(from)] = static_cast<std::uint32_t>(l);
    if (to.kind == topologies::NodeKind::gpu) down_[gpu(to)] = static_cast<std::uint32_t>(l);
  }
  for (int s = 0; s < cluster.servers; ++s) {
    const ServerSpec& server = cluster.server_at(s);
    first_.push_back(static_cast<std::uint32_t>(topology->links().size() + capacities_.size()));
    capacities_.insert(capacities_.end(), static_cast<std::size_t>(2 * switches(server)),
                       peer_pcie_bandwidth(server).count());
    for (const HostTransfer shared :
         {HostTransfer::host_memory, HostTransfer::nvme_read, HostTransfer::nvme_write})
      capacities_.push_back(std::max(1.0, whole(server, shared).count()));
  }
}

int HostLinks::switches(const ServerSpec& server) {
  if (server.gpus_per_pcie_switch == 1) return 0;
  return (server.gpus + server.gpus_per_pcie_switch - 1) / server.gpus_per_pcie_switch;
}

BytesPerSecond HostLinks::offered(HostTransfer transfer, const Device& device) const {
  const ServerSpec& server = cluster_.server_at(device.server);
  const BytesPerSecond all = whole(server, transfer);
  if (flows_ || device.is_host()) return all;  // processors share their memory with no GPU
  const bool pcie = transfer == HostTransfer::to_host || transfer == HostTransfer::to_device;
  const int most = std::min(most_players_, server.gpus);
  return all / (pcie ? std::min(server.gpus_per_pcie_switch, most) : most);
}

std::vector<std::uint32_t> HostLinks::path(HostTransfer transfer, const Device& device) const {
  TRAINYARD_CHECK(flows_, "paths without flows");
  const ServerSpec& spec = cluster_.server_at(device.server);
  const auto shared = static_cast<std::uint32_t>(2 * switches(spec));
  const std::uint32_t server = first_[static_cast<std::size_t>(device.server)];
  const std::uint32_t memory = server + shared;
  if (transfer == HostTransfer::host_memory) return {memory};
  if (transfer == HostTransfer::nvme_read) return {memory, memory + 1};
  if (transfer == HostTransfer::nvme_write) return {memory, memory + 2};
  const bool up = transfer == HostTransfer::to_host;
  std::vector<std::uint32_t> links = {
      (up ? up_
          : down_)[static_cast<std::size_t>(device.server * cluster_.gpu_slots() + device.gpu)],
      memory};
  if (shared > 0) {
    const int own = device.gpu / spec.gpus_per_pcie_switch;
    links.push_back(server + static_cast<std::uint32_t>(2 * own + (up ? 0 : 1)));
  }
  return links;
}

}  // namespace trainyard::lower
