#include "topologies/fabric.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"

namespace trainyard::topologies {
namespace {

// floor() that forgives the last bits of a quotient such as 42 / 2.1.
int floor_to_int(double value) {
  return static_cast<int>(std::floor(value + 1e-9));
}

int ceil_div(int amount, int part) {
  return amount / part + (amount % part > 0);
}

double ratio(const FatTree& tree, std::size_t tier) {
  return tier < tree.oversubscription.size() ? tree.oversubscription[tier] : 1;
}

// How many parallel links `uplinks` can form to each switch above, whose `ports` serve `groups`.
int parallel_cables(int uplinks, int groups, int ports) {
  int cables = std::max(1, std::min(uplinks, ports / std::max(1, groups)));
  while (uplinks % cables != 0)
    --cables;
  return cables;
}

// Cables between switches are as fast as the fastest NIC's.
BytesPerSecond line_rate(const ClusterSpec& cluster) {
  BytesPerSecond fastest;
  for (int kind = 0; kind < cluster.kinds(); ++kind) {
    const ServerSpec& server = cluster.server_of_kind(kind);
    fastest = std::max(fastest, server.nic_efficiency * server.nic_bandwidth);
  }
  return fastest;
}

std::vector<FabricLayer> layers_of(const SingleSwitch& fabric, const ClusterSpec&) {
  FabricLayer layer;
  layer.name = "leaf";
  layer.latency = fabric.switch_latency;
  return {layer};
}

std::vector<FabricLayer> layers_of(const FatTree& tree, const ClusterSpec& cluster) {
  const NodeKind kinds[] = {NodeKind::leaf, NodeKind::spine, NodeKind::core};
  const char* const names[] = {"leaf", "spine", "core"};
  std::vector<FabricLayer> layers;
  int below = cluster.servers * cluster.nic_slots();  // what hangs below the layer
  int planes = 1;
  for (int tier = 0; tier < tree.tiers; ++tier) {
    const auto t = static_cast<std::size_t>(tier);
    const bool top = tier + 1 == tree.tiers;
    const TierPorts ports = tier_ports(tree.radix, ratio(tree, t));
    FabricLayer layer;
    layer.kind = kinds[t];
    layer.name = names[t];
    layer.latency = tree.switch_latency;
    layer.groups = top ? 1 : ceil_div(below, ports.down);
    layer.planes = planes;
    if (!top) {
      const bool next_is_top = tier + 2 == tree.tiers;
      const int ports_above =
          next_is_top ? tree.radix : tier_ports(tree.radix, ratio(tree, t + 1)).down;
      layer.fan = std::min(layer.groups, ports_above);
      layer.cables = parallel_cables(ports.up, layer.fan, ports_above);
      layer.parents = ports.up / layer.cables;
      layer.cable = line_rate(cluster);
    }
    planes *= layer.parents;
    below = layer.groups;
    layers.push_back(layer);
  }
  return layers;
}

std::vector<FabricLayer> layers_of(const Clos& clos, const ClusterSpec& cluster) {
  const int gpus = cluster.servers * cluster.gpu_slots();
  const double per_gpu =
      static_cast<double>(cluster.nic_slots()) / static_cast<double>(cluster.gpu_slots());
  double thinned = 1;
  std::vector<FabricLayer> layers;
  for (std::size_t l = 0; l < clos.levels.size(); ++l) {
    const ClosLevel& level = clos.levels[l];
    const bool top = l + 1 == clos.levels.size();
    FabricLayer layer;
    layer.kind = l == 0 ? NodeKind::leaf : (top && l > 1 ? NodeKind::core : NodeKind::spine);
    layer.name = level.name.empty() ? "level " + std::to_string(l) + " group" : level.name;
    layer.latency = level.latency;
    layer.groups = ceil_div(gpus, level.gpus);
    if (!top) {
      const ClosLevel& above = clos.levels[l + 1];
      thinned *= above.oversubscription;
      layer.fan = l + 2 == clos.levels.size() ? layer.groups : above.gpus / level.gpus;
      layer.parents = layer.cables = 1;
      layer.cable = static_cast<double>(level.gpus) * per_gpu / thinned * line_rate(cluster);
    }
    layers.push_back(layer);
  }
  return layers;
}

std::int64_t nics_of(const ClusterSpec& cluster) {
  return std::int64_t{cluster.servers} * cluster.nic_slots();
}

std::vector<FabricLayer> layers_of(const Dragonfly& dragonfly, const ClusterSpec& cluster) {
  FabricLayer layer;
  layer.name = "router";
  layer.latency = dragonfly.switch_latency;
  layer.groups = dragonfly_groups(dragonfly, nics_of(cluster)) * dragonfly.routers_per_group;
  return {layer};
}

int nics_per_leaf(const ClusterSpec& cluster) {
  if (const auto* dragonfly = std::get_if<Dragonfly>(&cluster.fabric))
    return dragonfly->nics_per_router;
  if (const auto* tree = std::get_if<FatTree>(&cluster.fabric))
    return tier_ports(tree->radix, ratio(*tree, 0)).down;
  if (const auto* clos = std::get_if<Clos>(&cluster.fabric))
    return std::min(clos->levels.front().gpus / cluster.gpu_slots(), cluster.servers) *
           cluster.nic_slots();
  return cluster.servers * cluster.nic_slots();
}

LinkId uplink(const FabricLayer& layer, int group, int plane, int i, bool down) {
  const auto number =
      static_cast<std::uint32_t>((group * layer.planes + plane) * layer.uplinks() + i);
  return static_cast<LinkId>(layer.first_link + 2 * number + (down ? 1 : 0));
}

}  // namespace

TierPorts tier_ports(int radix, double oversubscription) {
  const int up = floor_to_int(radix / (1 + oversubscription));
  return {std::min(radix - up, floor_to_int(up * oversubscription)), up};
}

std::int64_t fat_tree_capacity(const FatTree& tree) {
  std::int64_t nics = tree.radix;
  for (int tier = 0; tier + 1 < tree.tiers; ++tier)
    nics *= tier_ports(tree.radix, ratio(tree, static_cast<std::size_t>(tier))).down;
  return nics;
}

Fabric build_fabric(const ClusterSpec& cluster, std::uint32_t first_node,
                    std::uint32_t first_link) {
  Fabric fabric;
  if (cluster.servers == 1) return fabric;
  fabric.layers =
      std::visit([&](const auto& spec) { return layers_of(spec, cluster); }, cluster.fabric);
  fabric.nics_per_leaf = nics_per_leaf(cluster);
  for (FabricLayer& layer : fabric.layers) {
    layer.first_node = first_node + fabric.nodes;
    layer.first_link = first_link + fabric.links;
    fabric.nodes += static_cast<std::uint32_t>(layer.switches());
    fabric.links += static_cast<std::uint32_t>(2 * layer.switches() * layer.uplinks());
  }
  if (const auto* dragonfly = std::get_if<Dragonfly>(&cluster.fabric)) {
    fabric.dragonfly.emplace(*dragonfly, nics_of(cluster), line_rate(cluster), first_link);
    fabric.links += static_cast<std::uint32_t>(fabric.dragonfly->count());
  }
  return fabric;
}

int meeting_layer(const Fabric& fabric, int from_leaf, int to_leaf) {
  int layer = 0;
  for (; from_leaf != to_leaf; ++layer) {
    const int fan = fabric.layers[static_cast<std::size_t>(layer)].fan;
    TRAINYARD_CHECK(fan > 0, "leaves {} and {} meet nowhere", from_leaf, to_leaf);
    from_leaf /= fan;
    to_leaf /= fan;
  }
  return layer;
}

void append_route(const Fabric& fabric, int from_leaf, int to_leaf, WayChoice& choice,
                  std::vector<LinkId>& route) {
  if (fabric.dragonfly) return fabric.dragonfly->append_route(from_leaf, to_leaf, choice, route);
  const int meeting = meeting_layer(fabric, from_leaf, to_leaf);
  int plane = 0;
  int group = from_leaf;
  std::vector<int> up;  // by layer
  for (int l = 0; l < meeting; ++l) {
    const FabricLayer& layer = fabric.layers[static_cast<std::size_t>(l)];
    const int i = up.emplace_back(choice.among(layer.uplinks()));
    route.push_back(uplink(layer, group, plane, i, false));
    plane = plane * layer.parents + i / layer.cables;
    group /= layer.fan;
  }
  // The way down is fixed by the plane but for the choice among parallel cables. The groups on it
  // are the destination's own at every layer.
  const std::size_t start = route.size();
  group = to_leaf;
  for (int l = 0; l < meeting; ++l) {
    const FabricLayer& layer = fabric.layers[static_cast<std::size_t>(l)];
    int above = plane;  // in the layer above this one
    for (int k = meeting - 1; k > l; --k)
      above /= fabric.layers[static_cast<std::size_t>(k)].parents;
    const int i = above % layer.parents * layer.cables +
                  choice.cable(up[static_cast<std::size_t>(l)], layer.cables);
    route.push_back(uplink(layer, group, above / layer.parents, i, true));
    group /= layer.fan;
  }
  std::reverse(route.begin() + static_cast<std::ptrdiff_t>(start), route.end());
}

Duration route_latency(const Fabric& fabric, int from_leaf, int to_leaf) {
  if (fabric.dragonfly) return fabric.dragonfly->route_latency(from_leaf, to_leaf);
  const int meeting = meeting_layer(fabric, from_leaf, to_leaf);
  Duration latency{0};
  for (int l = 0; l < meeting; ++l)
    latency += fabric.layers[static_cast<std::size_t>(l)].latency +
               fabric.layers[static_cast<std::size_t>(l) + 1].latency;
  return latency;
}

}  // namespace trainyard::topologies
