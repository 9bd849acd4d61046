#include "sim/lower/flows/flow_paths.h"

#include <algorithm>

#include "topologies/group_placement.h"
#include "topologies/torus.h"

namespace trainyard::lower {

namespace {

// `gpus`: of one server, ascending; `slots`: numbers that a server takes.
std::vector<std::pair<int, int>> on_torus(const topologies::ServerSpec& server,
                                          std::vector<int> gpus, int slots) {
  const int first = gpus.front() / slots * slots;
  for (int& gpu : gpus)
    gpu -= first;
  std::vector<std::pair<int, int>> edges = topologies::torus_edges(server.torus, gpus);
  for (auto& [from, to] : edges) {
    from += first;
    to += first;
  }
  return edges;
}

}  // namespace

int ring_count(int servers, int ranks_per_server) {
  return servers == 1 ? 1 : ranks_per_server;
}

std::vector<std::pair<int, int>> ring_edges(std::span<const int> gpus,
                                            const topologies::ClusterSpec& cluster) {
  const int slots = cluster.gpu_slots();
  const std::vector<std::vector<int>> servers = topologies::by_server(gpus, slots);
  const topologies::ServerSpec& server = cluster.server_at(gpus.front() / slots);
  if (servers.size() == 1 && server.intra == topologies::IntraKind::torus)
    return on_torus(server, servers.front(), slots);
  std::size_t most = 0;
  for (const std::vector<int>& own : servers)
    most = std::max(most, own.size());
  const int rings = ring_count(static_cast<int>(servers.size()), static_cast<int>(most));

  std::vector<std::pair<int, int>> edges;
  for (int ring = 0; ring < rings; ++ring) {
    std::vector<int> order;
    for (const std::vector<int>& own : servers) {
      const std::size_t size = own.size();
      for (std::size_t i = 0; i < size; ++i)
        order.push_back(own[(static_cast<std::size_t>(ring) + i) % size]);
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
