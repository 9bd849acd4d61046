#include "topologies/topology.h"

#include <fmt/format.h>

#include <array>
#include <deque>

#include "sim/base/check.h"
#include "sim/base/random.h"
#include "sim/base/text.h"
#include "topologies/cluster_check.h"
#include "topologies/fabric.h"
#include "topologies/group_placement.h"
#include "topologies/server_board.h"

namespace trainyard::topologies {

namespace {

constexpr int kStripeBit = 52;  // of a seed: above the numbers of two GPUs

}  // namespace

struct Topology::State {
  struct Server {
    const ServerSpec* spec = nullptr;
    const ServerBoard* board = nullptr;
    std::uint32_t first_node = 0, first_link = 0;

    NodeId node(int local) const {
      return static_cast<NodeId>(first_node + static_cast<std::uint32_t>(local));
    }
  };

  explicit State(const ClusterSpec& spec) : cluster(spec), stripes(topologies::stripes(spec)) {
    for (int kind = 0; kind < spec.kinds(); ++kind)
      boards.emplace_back(spec.server_of_kind(kind));
    std::uint32_t server_nodes = 0, server_links = 0;
    for (int number = 0; number < spec.servers; ++number) {
      Server& server = servers.emplace_back();
      server.spec = &cluster.server_at(number);
      server.board = &boards[static_cast<std::size_t>(spec.kind_of(number))];
      server.first_node = server_nodes;
      server.first_link = server_links;
      server_nodes += static_cast<std::uint32_t>(server.board->nodes().size());
      server_links += static_cast<std::uint32_t>(server.board->links().size());
      if (has_fabric()) server_links += static_cast<std::uint32_t>(2 * server.spec->nics);
    }
    fabric = build_fabric(spec, server_nodes, server_links);
    nodes.reserve(server_nodes + fabric.nodes);
    links.reserve(server_links + fabric.links);
    for (int number = 0; number < spec.servers; ++number)
      add_server(number);
    for (const FabricLayer& layer : fabric.layers)
      add_switches(layer);
    for (std::size_t l = 0; l + 1 < fabric.layers.size(); ++l)
      add_uplinks(fabric.layers[l], fabric.layers[l + 1]);
    if (fabric.dragonfly) add_links(*fabric.dragonfly);
    TRAINYARD_CHECK(
        nodes.size() == server_nodes + fabric.nodes && links.size() == server_links + fabric.links,
        "{} nodes, {} links", nodes.size(), links.size());
  }

  bool has_fabric() const { return cluster.servers > 1; }
  const Server& server(int number) const { return servers[static_cast<std::size_t>(number)]; }
  int leaf_of(int number, int nic) const {
    return (number * cluster.nic_slots() + nic) / fabric.nics_per_leaf;
  }
  LinkId nic_link(const Server& server, int nic, bool down) const {
    return static_cast<LinkId>(server.first_link +
                               static_cast<std::uint32_t>(server.board->links().size()) +
                               static_cast<std::uint32_t>(2 * nic + (down ? 1 : 0)));
  }

  void add_server(int number);
  void add_switches(const FabricLayer& layer);
  void add_uplinks(const FabricLayer& layer, const FabricLayer& above);
  void add_links(const DragonflyLinks& dragonfly);
  Route route_between(int from_gpu, int to_gpu, int stripe) const;

  ClusterSpec cluster;
  int stripes;
  std::deque<ServerBoard> boards;  // by kind of server
  std::vector<Server> servers;
  Fabric fabric;
  IdVector<NodeId, Node> nodes;
  IdVector<LinkId, Link> links;
};

void Topology::State::add_server(int number) {
  const Server& own = server(number);
  const ServerSpec& spec = *own.spec;
  for (const Node& local : own.board->nodes())
    nodes.push_back({local.kind, number, local.local});
  for (const ServerBoard::LocalLink& local : own.board->links())
    links.push_back(
        {own.node(local.from), own.node(local.to), local.kind, local.bandwidth, local.latency});
  if (!has_fabric()) return;
  const FabricLayer& leaves = fabric.layers.front();
  const BytesPerSecond bandwidth = spec.nic_efficiency * spec.nic_bandwidth;
  for (int n = 0; n < spec.nics; ++n) {
    const NodeId nic = own.node(own.board->nic(n));
    const auto leaf =
        static_cast<NodeId>(leaves.first_node + static_cast<std::uint32_t>(leaf_of(number, n)));
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

void Topology::State::add_links(const DragonflyLinks& dragonfly) {
  const std::uint32_t first = fabric.layers.front().first_node;
  const auto router = [first](int number) {
    return static_cast<NodeId>(first + static_cast<std::uint32_t>(number));
  };
  dragonfly.for_each([&](const DragonflyLinks::Ends& ends) {
    links.push_back({router(ends.from), router(ends.to), LinkKind::network,
                     dragonfly.bandwidth(ends.global), dragonfly.latency(ends.global)});
  });
}

Route Topology::State::route_between(int from_gpu, int to_gpu, int stripe) const {
  const int slots = cluster.gpu_slots();
  const int from_server = from_gpu / slots, from = from_gpu % slots;
  const int to_server = to_gpu / slots, to = to_gpu % slots;
  const Server &source = server(from_server), &destination = server(to_server);
  Route route;
  if (from_server == to_server) {
    route.latency = source.board->append_route(from, to, source.first_link, route.links);
    return route;
  }
  // Where a part could hash to follows from these numbers, as a switch's hash of a connection does.
  SplitMix64 hash(static_cast<std::uint64_t>(stripe) << kStripeBit |
                  static_cast<std::uint64_t>(from_gpu) << 32 | static_cast<std::uint64_t>(to_gpu));
  hash.next(), hash.next();  // the ways of published results begin at the third number
  const auto nic = [stripe](const ServerSpec& spec, int local) {
    return nic_of(spec, local) + stripe % nics_of(spec, local);
  };
  const int from_nic = nic(*source.spec, from), to_nic = nic(*destination.spec, to);
  WayChoice choice(std::visit([](const auto& spec) { return spec.routing; }, cluster.fabric), hash,
                   std::int64_t{to_server} * cluster.nic_slots() + to_nic);
  const int from_leaf = leaf_of(from_server, from_nic), to_leaf = leaf_of(to_server, to_nic);
  route.latency = source.board->append_route(source.board->gpu(from), source.board->nic(from_nic),
                                             source.first_link, route.links);
  route.links.push_back(nic_link(source, from_nic, false));
  append_route(fabric, from_leaf, to_leaf, choice, route.links);
  route.links.push_back(nic_link(destination, to_nic, true));
  route.latency += source.spec->nic_latency + destination.spec->nic_latency +
                   fabric.layers.front().latency + route_latency(fabric, from_leaf, to_leaf);
  const ServerBoard& there = *destination.board;
  route.latency +=
      there.append_route(there.nic(to_nic), there.gpu(to), destination.first_link, route.links);
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
  return state_->cluster.servers * state_->cluster.gpu_slots();
}
int Topology::server_of(int gpu) const {
  return gpu / state_->cluster.gpu_slots();
}

NodeId Topology::gpu_node(int gpu) const {
  TRAINYARD_CHECK(0 <= gpu && gpu < gpus(), "GPU {} of {}", gpu, gpus());
  return state_->server(server_of(gpu)).node(gpu % state_->cluster.gpu_slots());
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

Route Topology::route(int from_gpu, int to_gpu, int stripe) const {
  TRAINYARD_CHECK(0 <= from_gpu && from_gpu < gpus() && 0 <= to_gpu && to_gpu < gpus(),
                  "route from GPU {} to GPU {} of {}", from_gpu, to_gpu, gpus());
  TRAINYARD_CHECK(from_gpu != to_gpu, "route from GPU {} to itself", from_gpu);
  TRAINYARD_CHECK(0 <= stripe && stripe < state_->stripes, "stripe {} of {}", stripe,
                  state_->stripes);
  return state_->route_between(from_gpu, to_gpu, stripe);
}

std::pair<LinkId, LinkId> Topology::nic_links(int server, int nic) const {
  TRAINYARD_CHECK(state_->has_fabric(), "one server has no fabric");
  TRAINYARD_CHECK(0 <= server && server < cluster().servers && 0 <= nic &&
                      nic < cluster().server_at(server).nics,
                  "server {}, NIC {}", server, nic);
  const State::Server& own = state_->server(server);
  return {state_->nic_link(own, nic, false), state_->nic_link(own, nic, true)};
}

}  // namespace trainyard::topologies
