// The network between servers as layers of switches, every kind of fabric but the dragonfly in one
// arithmetic form:
// the parallel-ports generalised fat tree.
//
//   A layer has `groups`; all switches of a group (its `planes`) serve the same NICs. A switch
//   reaches `parents` switches of the next layer over `cables` links each. Plane r of group q
//   reaches, over uplink i, plane r * parents + i / cables of group q / fan.
//
//   single switch: one layer. Clos levels: planes = parents = cables = 1, one fat link per group.
//   k-ary fat tree: k/2 uplinks per leaf, pods of k/2 leaves and k/2 spines, (k/2)^2 cores.
//
// Ids follow from the form, so a route needs no table and no search.
//
//   Source: Ohring et al., On generalized fat trees, IPPS 1995; Zahavi, Fat-tree routing and node
//   ordering providing contention free traffic for MPI global collectives, JPDC 72 (2012).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topologies/dragonfly.h"
#include "topologies/topology.h"
#include "topologies/way_choice.h"

namespace trainyard::topologies {

struct FabricLayer {
  NodeKind kind = NodeKind::leaf;
  std::string name;  // of one switch, "leaf"
  int groups = 1;
  int planes = 1;      // switches of one group
  Duration latency{};  // of one switch, charged on the links into it
  // Upwards; all zero in the top layer.
  int fan = 0;      // groups of this layer below one group of the next
  int parents = 0;  // switches of the next layer that one switch reaches
  int cables = 0;   // parallel links to each of them
  BytesPerSecond cable;

  std::uint32_t first_node = 0, first_link = 0;

  int switches() const { return groups * planes; }
  int uplinks() const { return parents * cables; }  // of one switch
};

// A dragonfly is one layer of routers without uplinks, and the links between them.
struct Fabric {
  int nics_per_leaf = 1;  // NIC number n of the cluster hangs on leaf n / nics_per_leaf
  std::vector<FabricLayer> layers;
  std::uint32_t nodes = 0, links = 0;
  std::optional<DragonflyLinks> dragonfly{};
};

// The ports of a switch of one tier: the most uplinks, and down-links at most `oversubscription`
// times as many. Both are zero if the radix is too small for the ratio.
struct TierPorts {
  int down = 0, up = 0;
};
TierPorts tier_ports(int radix, double oversubscription);

// NICs that a full-size tree of this shape reaches.
std::int64_t fat_tree_capacity(const FatTree& tree);

// The layers of a cluster's fabric, ids starting at the given ones. No layer if there is one
// server. Requires: check(cluster) found no error.
Fabric build_fabric(const ClusterSpec& cluster, std::uint32_t first_node, std::uint32_t first_link);

// How far up a route between two leaves goes, for all NIC pairs on them. 0: both on one leaf.
// Requires: layers that meet, no dragonfly.
int meeting_layer(const Fabric& fabric, int from_leaf, int to_leaf);

// Appends the links from leaf to leaf, choosing among equal ones by `choice`.
void append_route(const Fabric& fabric, int from_leaf, int to_leaf, WayChoice& choice,
                  std::vector<LinkId>& route);

// The latency of that route, the first leaf's own not counted. Every choice of links has the same.
Duration route_latency(const Fabric& fabric, int from_leaf, int to_leaf);

}  // namespace trainyard::topologies
