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

std::uint32_t add_path(const topologies::Topology& topology, PathEnd from, PathEnd to,
                       RankStructure& structure, std::uint32_t layout, int weight) {
  RankStructure::Path path;
  path.source = from.player;
  path.destination = to.player;
  for (const LinkId link : topology.route(from.gpu, to.gpu).links)
    path.links.push_back(static_cast<std::uint32_t>(link));
  path.layout = layout;
  path.weight = weight;
  structure.paths.push_back(std::move(path));
  return static_cast<std::uint32_t>(structure.paths.size() - 1);
}

}  // namespace trainyard::lower
