#include "topologies/server_board.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>

#include "sim/base/check.h"
#include "topologies/torus.h"

namespace trainyard::topologies {

namespace {

using Weight = std::uint64_t;
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property,
                                    boost::property<boost::edge_weight_t, Weight>>;

constexpr Weight kUnreached = ~Weight{0};

// Hops above, picoseconds below: one integer, so equal routes are exactly equal. check() keeps a
// latency below 2^40 ps and a server below 2^12 nodes, so the low part never reaches the high one.
constexpr int kLatencyBits = 52;
Weight weight(Duration latency) {
  return (Weight{1} << kLatencyBits) + static_cast<Weight>(latency.count());
}

std::vector<Weight> distances_from(const Graph& graph, std::size_t source) {
  std::vector<Weight> distance(boost::num_vertices(graph));
  boost::dijkstra_shortest_paths(
      graph, source,
      boost::distance_map(boost::make_iterator_property_map(distance.begin(),
                                                            boost::get(boost::vertex_index, graph)))
          .distance_inf(kUnreached));
  return distance;
}

}  // namespace

BytesPerSecond stated_pcie_bandwidth(const ServerSpec& server) {
  if (!joins_by_pcie(server.intra)) return server.pcie_bandwidth;
  if (server.intra_bandwidth.count() > 0) return server.intra_bandwidth;
  if (server.pcie_bandwidth.count() > 0) return server.pcie_bandwidth;
  BytesPerSecond slowest = server.gpu.pcie_bandwidth;
  for (const OtherGpus& other : server.other_gpus)
    slowest = std::min(slowest, other.gpu.pcie_bandwidth);
  return slowest;
}

BytesPerSecond nic_pcie_bandwidth(const ServerSpec& server) {
  if (server.pcie_bandwidth.count() > 0) return server.pcie_bandwidth;
  return static_cast<double>(server.nics) * server.nic_bandwidth;
}

BytesPerSecond socket_bandwidth(const ServerSpec& server) {
  if (server.socket_bandwidth.count() > 0) return server.socket_bandwidth;
  const auto widest = std::max(nic_pcie_bandwidth(server), peer_pcie_bandwidth(server));
  return static_cast<double>(server.gpus + server.nics) * widest;
}

BytesPerSecond peer_pcie_bandwidth(const ServerSpec& server) {
  const BytesPerSecond stated = stated_pcie_bandwidth(server);
  return stated.count() > 0 ? stated : static_cast<double>(server.nics) * server.nic_bandwidth;
}

ServerBoard::ServerBoard(const ServerSpec& server) {
  add_nodes(NodeKind::gpu, server.gpus);
  build_nvlink(server);
  if (server.intra == IntraKind::torus) build_torus(server);
  build_host(server);
  if (server.intra == IntraKind::torus) return;
  TRAINYARD_CHECK(links_.size() < kNone && nodes_.size() < 4096, "server of {} nodes",
                  nodes_.size());
  next_.assign(nodes_.size() * nodes_.size(), kNone);
  route_by(true);
  route_by(false);
}

void ServerBoard::add_nodes(NodeKind kind, int count) {
  for (int local = 0; local < count; ++local)
    nodes_.push_back({kind, 0, local});
}

void ServerBoard::add_cable(int a, int b, LinkKind kind, BytesPerSecond bandwidth, Duration there,
                            Duration back) {
  links_.push_back({a, b, kind, bandwidth, there});
  links_.push_back({b, a, kind, bandwidth, back});
}

void ServerBoard::build_nvlink(const ServerSpec& server) {
  const Duration latency = server.intra_latency;
  if (server.intra == IntraKind::nvswitch) {
    const int hub = static_cast<int>(nodes_.size());
    add_nodes(NodeKind::nvswitch, 1);
    for (int g = 0; g < server.gpus; ++g)
      add_cable(gpu(g), hub, LinkKind::nvlink, server.intra_bandwidth, latency, Duration{0});
  }
  if (server.intra == IntraKind::nvlink_mesh) {
    for (const NvlinkPair& pair : server.mesh) {
      const BytesPerSecond bandwidth = static_cast<double>(pair.links) * server.intra_bandwidth;
      add_cable(gpu(pair.a), gpu(pair.b), LinkKind::nvlink, bandwidth, latency, latency);
    }
  }
}

void ServerBoard::build_torus(const ServerSpec& server) {
  torus_ = server.torus;
  const std::size_t dimensions = torus_.sizes.size();
  torus_links_.assign(2 * dimensions * static_cast<std::size_t>(server.gpus), kNoLink);
  const auto slot = [&](int gpu, std::size_t dimension, bool up) -> std::uint32_t& {
    return torus_links_[2 * (static_cast<std::size_t>(gpu) * dimensions + dimension) + up];
  };
  for (int g = 0; g < server.gpus; ++g)
    for (std::size_t d = 0; d < dimensions; ++d) {
      const std::optional<int> above = torus_neighbour(torus_, g, d, true);
      if (!above) continue;
      slot(g, d, true) = static_cast<std::uint32_t>(links_.size());
      slot(*above, d, false) = static_cast<std::uint32_t>(links_.size() + 1);
      add_cable(g, *above, LinkKind::nvlink, server.intra_bandwidth, server.intra_latency,
                server.intra_latency);
    }
}

void ServerBoard::build_host(const ServerSpec& server) {
  const int bridge = static_cast<int>(nodes_.size());
  const BytesPerSecond slot = peer_pcie_bandwidth(server);
  const int sockets = slot.count() > 0 ? server.sockets : 0;
  add_nodes(NodeKind::host_bridge, sockets);
  first_nic_ = static_cast<int>(nodes_.size());
  add_nodes(NodeKind::nic, server.nics);
  first_host_link_ = static_cast<std::uint32_t>(links_.size());
  sockets_ = sockets;
  if (sockets == 0) return;
  const Duration latency = joins_by_pcie(server.intra) ? server.intra_latency : Duration{0};
  for (int g = 0; g < server.gpus; ++g)
    add_cable(gpu(g), bridge + socket_of(g, server.gpus, sockets), LinkKind::pcie, slot, latency,
              Duration{0});
  for (int a = 0; a < sockets; ++a)
    for (int b = a + 1; b < sockets; ++b)
      add_cable(bridge + a, bridge + b, LinkKind::socket, socket_bandwidth(server), Duration{0},
                Duration{0});
  for (int n = 0; n < server.nics; ++n)
    add_cable(bridge + socket_of(n, server.nics, sockets), nic(n), LinkKind::pcie,
              nic_pcie_bandwidth(server), Duration{0}, Duration{0});
}

// Fills what has no route yet, over NVLink alone or over everything else alone: a GPU relays on
// NVLink as NCCL lets it, but nothing relays from NVLink to PCIe.
void ServerBoard::route_by(bool nvlink) {
  const std::size_t size = nodes_.size();
  Graph reversed(size);
  for (const LocalLink& link : links_)
    if ((link.kind == LinkKind::nvlink) == nvlink)
      boost::add_edge(static_cast<std::size_t>(link.to), static_cast<std::size_t>(link.from),
                      weight(link.latency), reversed);
  for (std::size_t to = 0; to < size; ++to) {
    const NodeKind kind = nodes_[to].kind;
    if (kind != NodeKind::gpu && (nvlink || kind != NodeKind::nic)) continue;
    const std::vector<Weight> distance = distances_from(reversed, to);
    for (std::size_t id = 0; id < links_.size(); ++id) {  // ascending: the lowest id wins a tie
      const LocalLink& link = links_[id];
      const auto from = static_cast<std::size_t>(link.from);
      const auto via = static_cast<std::size_t>(link.to);
      if ((link.kind == LinkKind::nvlink) != nvlink || from == to || distance[via] == kUnreached)
        continue;
      std::uint16_t& next = next_[to * size + from];
      if (next == kNone && distance[from] == distance[via] + weight(link.latency))
        next = static_cast<std::uint16_t>(id);
    }
  }
}

std::uint32_t ServerBoard::next_link(int from, int to) const {
  if (!torus_links_.empty()) return next_on_torus(from, to);
  const std::uint16_t link =
      next_[static_cast<std::size_t>(to) * nodes_.size() + static_cast<std::size_t>(from)];
  return link == kNone ? kNoLink : link;
}

// Links of the host lie as build_host adds them: two a GPU, two a pair of bridges, two a NIC.
std::uint32_t ServerBoard::next_on_torus(int from, int to) const {
  const auto gpus = static_cast<int>(torus_gpus(torus_));
  const std::size_t dimensions = torus_.sizes.size();
  if (from < gpus && to < gpus) {
    const int next = torus_step(torus_, from, to);
    const auto first = 2 * static_cast<std::size_t>(from) * dimensions;
    for (std::size_t at = first; at < first + 2 * dimensions; ++at)
      if (torus_links_[at] != kNoLink && links_[torus_links_[at]].to == next)
        return torus_links_[at];
    return kNoLink;
  }
  if (sockets_ == 0) return kNoLink;
  const int nics = static_cast<int>(nodes_.size()) - first_nic_;
  const auto link = [this](int at) { return first_host_link_ + static_cast<std::uint32_t>(at); };
  const auto bridge_of = [&](int node) {
    if (node >= first_nic_) return socket_of(node - first_nic_, nics, sockets_);
    return node >= gpus ? node - gpus : socket_of(node, gpus, sockets_);
  };
  const int first_nic_link = 2 * gpus + sockets_ * (sockets_ - 1);
  if (from < gpus) return link(2 * from);
  if (from >= first_nic_) return link(first_nic_link + 2 * (from - first_nic_) + 1);
  const int a = from - gpus, b = bridge_of(to);
  if (a == b) return to < gpus ? link(2 * to + 1) : link(first_nic_link + 2 * (to - first_nic_));
  const int low = std::min(a, b), high = std::max(a, b);
  const int pair = low * (2 * sockets_ - low - 1) / 2 + high - low - 1;
  return link(2 * gpus + 2 * pair + (a < b ? 0 : 1));
}

Duration ServerBoard::append_route(int from, int to, std::uint32_t first,
                                   std::vector<LinkId>& route) const {
  Duration latency{0};
  while (from != to) {
    const std::uint32_t id = next_link(from, to);
    TRAINYARD_CHECK(id != kNoLink, "no route from node {} to node {} of a server", from, to);
    route.push_back(static_cast<LinkId>(first + id));
    latency += links_[id].latency;
    from = links_[id].to;
  }
  return latency;
}

}  // namespace trainyard::topologies
