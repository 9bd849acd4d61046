#include "topologies/topology.h"

#include <fmt/format.h>

#include <array>

#include "sim/base/check.h"
#include "sim/base/random.h"
#include "sim/base/text.h"
#include "topologies/cluster_check.h"
#include "topologies/fabric.h"
#include "topologies/group_placement.h"
#include "topologies/server_board.h"

namespace trainyard::topologies {

struct Topology::State {
  explicit State(const ClusterSpec& spec) : cluster(spec), board(spec.server) {
    nodes_per_server = static_cast<std::uint32_t>(board.nodes().size());
    const auto nic_links = static_cast<std::uint32_t>(has_fabric() ? 2 * spec.server.nics : 0);
    links_per_server = static_cast<std::uint32_t>(board.links().size()) + nic_links;
    const auto servers = static_cast<std::uint32_t>(spec.servers);
    fabric = build_fabric(spec, servers * nodes_per_server, servers * links_per_server);
    nodes.reserve(servers * nodes_per_server + fabric.nodes);
    links.reserve(servers * links_per_server + fabric.links);
    for (std::uint32_t s = 0; s < servers; ++s)
      add_server(s);
    for (const FabricLayer& layer : fabric.layers)
      add_switches(layer);
    for (std::size_t l = 0; l + 1 < fabric.layers.size(); ++l)
      add_uplinks(fabric.layers[l], fabric.layers[l + 1]);
    TRAINYARD_CHECK(nodes.size() == servers * nodes_per_server + fabric.nodes &&
                        links.size() == servers * links_per_server + fabric.links,
                    "{} nodes, {} links", nodes.size(), links.size());
  }

  bool has_fabric() const { return cluster.servers > 1; }
  NodeId node(std::uint32_t server, int local) const {
    return static_cast<NodeId>(server * nodes_per_server + static_cast<std::uint32_t>(local));
  }
  int leaf_of(int server, int nic) const {
    return (server * cluster.server.nics + nic) / fabric.nics_per_leaf;
  }
  LinkId nic_link(int server, int nic, bool down) const {
    return static_cast<LinkId>(static_cast<std::uint32_t>(server) * links_per_server +
                               static_cast<std::uint32_t>(board.links().size()) +
                               static_cast<std::uint32_t>(2 * nic + (down ? 1 : 0)));
  }

  void add_server(std::uint32_t server);
  void add_switches(const FabricLayer& layer);
  void add_uplinks(const FabricLayer& layer, const FabricLayer& above);
  Route route_between(int from_gpu, int to_gpu) const;

  ClusterSpec cluster;
  ServerBoard board;
  Fabric fabric;
  std::uint32_t nodes_per_server = 0, links_per_server = 0;
  IdVector<NodeId, Node> nodes;
  IdVector<LinkId, Link> links;
};

void Topology::State::add_server(std::uint32_t server) {
  const ServerSpec& spec = cluster.server;
  for (const Node& local : board.nodes())
    nodes.push_back({local.kind, static_cast<int>(server), local.local});
  for (const ServerBoard::LocalLink& local : board.links())
    links.push_back({node(server, local.from), node(server, local.to), local.kind, local.bandwidth,
                     local.latency});
  if (!has_fabric()) return;
  const FabricLayer& leaves = fabric.layers.front();
  const BytesPerSecond bandwidth = spec.nic_efficiency * spec.nic_bandwidth;
  for (int n = 0; n < spec.nics; ++n) {
    const NodeId nic = node(server, board.nic(n));
    const auto leaf = static_cast<NodeId>(
        leaves.first_node + static_cast<std::uint32_t>(leaf_of(static_cast<int>(server), n)));
    links.push_back({nic, leaf, LinkKind::network, bandwidth, spec.nic_latency + leaves.latency});
    links.push_back({leaf, nic, LinkKind::network, bandwidth, spec.nic_latency});
  }
}

void Topology::State::add_switches(const FabricLayer& layer) {
  for (int i = 0; i < layer.switches(); ++i)
    nodes.push_back({layer.kind, -1, i});
}

void Topology::State::add_uplinks(const FabricLayer& layer, const FabricLayer& above) {
  for (int q = 0; q < layer.groups; ++q)
    for (int r = 0; r < layer.planes; ++r)
      for (int i = 0; i < layer.uplinks(); ++i) {
        const int up = q / layer.fan * above.planes + r * layer.parents + i / layer.cables;
        const auto a = static_cast<NodeId>(layer.first_node +
                                           static_cast<std::uint32_t>(q * layer.planes + r));
        const auto b = static_cast<NodeId>(above.first_node + static_cast<std::uint32_t>(up));
        links.push_back({a, b, LinkKind::network, layer.cable, above.latency});
        links.push_back({b, a, LinkKind::network, layer.cable, layer.latency});
      }
}

Route Topology::State::route_between(int from_gpu, int to_gpu) const {
  const ServerSpec& spec = cluster.server;
  const int from_server = from_gpu / spec.gpus, from = from_gpu % spec.gpus;
  const int to_server = to_gpu / spec.gpus, to = to_gpu % spec.gpus;
  const auto first_link = [&](int server) {
    return static_cast<std::uint32_t>(server) * links_per_server;
  };
  Route route;
  if (from_server == to_server) {
    route.latency = board.append_route(from, to, first_link(from_server), route.links);
    return route;
  }
  // Everything the two GPUs could hash to follows from their numbers, as a switch's hash of a
  // connection does: the same pair always takes the same way.
  SplitMix64 hash(static_cast<std::uint64_t>(from_gpu) << 32 | static_cast<std::uint64_t>(to_gpu));
  const int from_nic =
      nic_of(spec, from) +
      static_cast<int>(hash.below(static_cast<std::uint64_t>(nics_of(spec, from))));
  const int to_nic = nic_of(spec, to) +
                     static_cast<int>(hash.below(static_cast<std::uint64_t>(nics_of(spec, to))));
  const int from_leaf = leaf_of(from_server, from_nic), to_leaf = leaf_of(to_server, to_nic);
  route.latency = board.append_route(board.gpu(from), board.nic(from_nic), first_link(from_server),
                                     route.links);
  route.links.push_back(nic_link(from_server, from_nic, false));
  append_route(fabric, from_leaf, to_leaf, hash, route.links);
  route.links.push_back(nic_link(to_server, to_nic, true));
  route.latency += 2 * spec.nic_latency + fabric.layers.front().latency +
                   route_latency(fabric, from_leaf, to_leaf);
  route.latency +=
      board.append_route(board.nic(to_nic), board.gpu(to), first_link(to_server), route.links);
  return route;
}

Topology::Topology(const ClusterSpec& cluster) {
  const std::vector<Diagnostic> found = check(cluster);
  for (const Diagnostic& diagnostic : found)
    TRAINYARD_CHECK(diagnostic.severity != Severity::error, "{}", to_text(diagnostic));
  state_ = std::make_unique<State>(cluster);
}

Topology::~Topology() = default;
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;

const ClusterSpec& Topology::cluster() const {
  return state_->cluster;
}
int Topology::gpus() const {
  return state_->cluster.servers * state_->cluster.server.gpus;
}
int Topology::server_of(int gpu) const {
  return gpu / state_->cluster.server.gpus;
}

NodeId Topology::gpu_node(int gpu) const {
  TRAINYARD_CHECK(0 <= gpu && gpu < gpus(), "GPU {} of {}", gpu, gpus());
  return state_->node(static_cast<std::uint32_t>(server_of(gpu)),
                      gpu % state_->cluster.server.gpus);
}

const IdVector<NodeId, Node>& Topology::nodes() const& {
  return state_->nodes;
}
const IdVector<LinkId, Link>& Topology::links() const& {
  return state_->links;
}

std::string Topology::name(NodeId id) const {
  constexpr std::array kWords = {"GPU", "NVSwitch", "host bridge", "NIC"};
  const Node& node = state_->nodes[id];
  if (node.server >= 0)
    return fmt::format("server {} / {} {}", node.server,
                       kWords[static_cast<std::size_t>(node.kind)], node.local);
  const FabricLayer* layer = &state_->fabric.layers.front();
  for (const FabricLayer& next : state_->fabric.layers)
    if (next.first_node <= index(id)) layer = &next;
  return fmt::format("{} {}", layer->name, node.local);
}

std::string Topology::name(LinkId id) const {
  const Link& link = state_->links[id];
  return fmt::format("{} -> {}", name(link.from), name(link.to));
}

Route Topology::route(int from_gpu, int to_gpu) const {
  TRAINYARD_CHECK(0 <= from_gpu && from_gpu < gpus() && 0 <= to_gpu && to_gpu < gpus(),
                  "route from GPU {} to GPU {} of {}", from_gpu, to_gpu, gpus());
  TRAINYARD_CHECK(from_gpu != to_gpu, "route from GPU {} to itself", from_gpu);
  return state_->route_between(from_gpu, to_gpu);
}

std::pair<LinkId, LinkId> Topology::nic_links(int server, int nic) const {
  TRAINYARD_CHECK(state_->has_fabric(), "one server has no fabric");
  TRAINYARD_CHECK(
      0 <= server && server < cluster().servers && 0 <= nic && nic < cluster().server.nics,
      "server {}, NIC {}", server, nic);
  return {state_->nic_link(server, nic, false), state_->nic_link(server, nic, true)};
}

}  // namespace trainyard::topologies
