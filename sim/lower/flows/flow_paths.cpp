#include "sim/lower/flows/flow_paths.h"

#include <algorithm>

#include "topologies/group_placement.h"
#include "topologies/torus.h"

namespace trainyard::lower {

namespace {

// `gpus`: of one server, ascending; `slots`: numbers that a server takes. Empty on other boards,
// and on a mesh whose links make no ring of the group.
std::vector<std::pair<int, int>> on_board(const topologies::ServerSpec& server,
                                          std::vector<int> gpus, int slots) {
  const int first = gpus.front() / slots * slots;
  for (int& gpu : gpus)
    gpu -= first;
  std::vector<std::pair<int, int>> edges;
  if (server.intra == topologies::IntraKind::torus)
    edges = topologies::torus_edges(server.torus, gpus);
  else if (server.intra == topologies::IntraKind::nvlink_mesh)
    edges = topologies::mesh_rings(server, gpus).edges;
  for (auto& [from, to] : edges) {
    from += first;
    to += first;
  }
  return edges;
}

// A ring on each GPU of a mesh: the order in which it passes through the server that it enters
// there, along one of the packed rings, all of which serve about as many, and leaves at another GPU
// than the others do. Empty where there is no such choice.
class MeshOrders {
 public:
  MeshOrders(const topologies::RingPacking& packing, const std::vector<int>& gpus)
      : packing_(packing), gpus_(gpus), chosen_(gpus.size()) {}

  std::vector<std::vector<int>> find() {
    if (packing_.rings == 0 || packing_.relays > 0 || !choose(0)) return {};
    std::vector<std::vector<int>> orders;
    for (std::size_t ring = 0; ring < gpus_.size(); ++ring) {
      std::vector<int>& order = orders.emplace_back();
      for (std::size_t at = ring; order.size() < gpus_.size(); at = next(chosen_[ring], at))
        order.push_back(gpus_[at]);
    }
    return orders;
  }

 private:
  // Of a packed ring, whose edges come in the order of the GPUs that they leave.
  std::size_t next(std::size_t packed, std::size_t at) const {
    const int gpu = packing_.edges[packed * gpus_.size() + at].second;
    return static_cast<std::size_t>(std::find(gpus_.begin(), gpus_.end(), gpu) - gpus_.begin());
  }
  std::size_t last(std::size_t packed, std::size_t first) const {
    std::size_t at = first;
    while (next(packed, at) != first)
      at = next(packed, at);
    return at;
  }
  bool choose(std::size_t ring) {
    const std::size_t n = gpus_.size(), packed = static_cast<std::size_t>(packing_.rings);
    if (ring == n) return true;
    const auto most = static_cast<std::ptrdiff_t>((n + packed - 1) / packed);
    for (std::size_t i = 0; i < packed; ++i) {
      chosen_[ring] = (ring + i) % packed;
      const auto before = chosen_.begin() + static_cast<std::ptrdiff_t>(ring);
      if (std::count(chosen_.begin(), before, chosen_[ring]) >= most) continue;
      bool free = true;
      for (std::size_t other = 0; other < ring; ++other)
        free = free && last(chosen_[other], other) != last(chosen_[ring], ring);
      if (free && choose(ring + 1)) return true;
    }
    return false;
  }

  const topologies::RingPacking& packing_;
  const std::vector<int>& gpus_;
  std::vector<std::size_t> chosen_;
};

// By ring and place; empty where rings take the GPUs of a server in order.
std::vector<std::vector<int>> orders_on_mesh(const topologies::ClusterSpec& cluster,
                                             const std::vector<std::vector<int>>& servers) {
  const topologies::ServerSpec& server = cluster.server;
  if (cluster.kinds() > 1 || server.intra != topologies::IntraKind::nvlink_mesh) return {};
  const auto local = [&](std::vector<int> gpus) {
    for (int& gpu : gpus)
      gpu %= cluster.gpu_slots();
    return gpus;
  };
  const std::vector<int> first = local(servers.front());
  if (first.size() < 2) return {};
  for (const std::vector<int>& own : servers)
    if (local(own) != first) return {};
  const topologies::RingPacking packing = topologies::mesh_rings(server, first);
  return MeshOrders(packing, first).find();
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
  if (servers.size() == 1) {
    std::vector<std::pair<int, int>> edges = on_board(server, servers.front(), slots);
    if (!edges.empty()) return edges;
  }
  std::size_t most = 0;
  for (const std::vector<int>& own : servers)
    most = std::max(most, own.size());
  const int rings = ring_count(static_cast<int>(servers.size()), static_cast<int>(most));

  const std::vector<std::vector<int>> orders = orders_on_mesh(cluster, servers);
  std::vector<std::pair<int, int>> edges;
  for (int ring = 0; ring < rings; ++ring) {
    std::vector<int> order;
    for (const std::vector<int>& own : servers) {
      const std::size_t size = own.size();
      for (std::size_t i = 0; i < size; ++i)
        order.push_back(orders.empty() ? own[(static_cast<std::size_t>(ring) + i) % size]
                                       : own.front() / slots * slots +
                                             orders[static_cast<std::size_t>(ring)][i]);
    }
    for (std::size_t i = 0; i < order.size(); ++i)
      edges.emplace_back(order[i], order[(i + 1) % order.size()]);
  }
  return edges;
}

std::vector<double> link_capacities(const topologies::Topology& topology) {
  const int stripes = topologies::stripes(topology.cluster());
  std::vector<double> capacities;
  for (const topologies::Link& link : topology.links())
    capacities.push_back(stripes * link.bandwidth.count());
  return capacities;
}

std::vector<std::uint32_t> route_links(const topologies::Topology& topology, int from_gpu,
                                       int to_gpu, HostEnds hosts) {
  const int stripes = topologies::stripes(topology.cluster());
  std::vector<std::uint32_t> links;
  for (int stripe = 0; stripe < stripes; ++stripe) {
    const std::vector<LinkId> way = topology.route(from_gpu, to_gpu, stripe).links;
    for (std::size_t l = hosts.from ? 1 : 0; l < way.size() - (hosts.to ? 1 : 0); ++l)
      links.push_back(static_cast<std::uint32_t>(way[l]));
  }
  return links;
}

std::vector<std::uint32_t> in_stripes(const std::vector<std::uint32_t>& links, int stripes) {
  std::vector<std::uint32_t> all;
  for (int stripe = 0; stripe < stripes; ++stripe)
    all.insert(all.end(), links.begin(), links.end());
  return all;
}

}  // namespace trainyard::lower
