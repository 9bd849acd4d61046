#include "sim/lower/flow_paths.h"

#include <algorithm>

#include "topologies/group_placement.h"

namespace trainyard::lower {

int ring_count(int servers, int ranks_per_server) {
  return servers == 1 ? 1 : ranks_per_server;
}

std::vector<std::pair<int, int>> ring_edges(std::span<const int> gpus, int gpus_per_server) {
  const std::vector<std::vector<int>> servers = topologies::by_server(gpus, gpus_per_server);
  std::size_t most = 0;
  for (const std::vector<int>& server : servers)
    most = std::max(most, server.size());
  const int rings = ring_count(static_cast<int>(servers.size()), static_cast<int>(most));

  std::vector<std::pair<int, int>> edges;
  for (int ring = 0; ring < rings; ++ring) {
    std::vector<int> order;
    for (const std::vector<int>& server : servers) {
      const std::size_t size = server.size();
      for (std::size_t i = 0; i < size; ++i)
        order.push_back(server[(static_cast<std::size_t>(ring) + i) % size]);
    }
    for (std::size_t i = 0; i < order.size(); ++i)
      edges.emplace_back(order[i], order[(i + 1) % order.size()]);
  }
  return edges;
}

std::vector<std::uint32_t> route_links(const topologies::Topology& topology, int from_gpu,
                                       int to_gpu) {
  std::vector<std::uint32_t> links;
  for (const LinkId link : topology.route(from_gpu, to_gpu).links)
    links.push_back(static_cast<std::uint32_t>(link));
  return links;
}

}  // namespace trainyard::lower
