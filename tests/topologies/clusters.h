// Clusters and graph helpers for the tests of this room.
#pragma once

#include <algorithm>
#include <numeric>
#include <queue>
#include <vector>

#include "tests/support/rooms.h"
#include "topologies/cluster_check.h"
#include "topologies/topology.h"

namespace trainyard::test {

using namespace std::chrono_literals;
using namespace trainyard::literals;

inline ServerSpec nvswitch_server(int gpus = 8, int nics = 8) {
  ServerSpec server;
  server.gpus = gpus;
  server.intra_bandwidth = 300_GBps;
  server.intra_latency = 1500ns;
  server.pcie_bandwidth = 32_GBps;
  server.sockets = 2;
  server.nics = nics;
  server.nic_bandwidth = 25_GBps;
  server.nic_latency = 1us;
  return server;
}

// The hybrid cube mesh of a DGX-1V, with what one of its NVLinks really carries.
inline ServerSpec dgx1v() {
  ServerSpec server = nvswitch_server(8, 4);
  server.intra = IntraKind::nvlink_mesh;
  server.intra_bandwidth = BytesPerSecond(22.4e9);
  server.mesh = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1},
                 {1, 5, 2}, {2, 3, 2}, {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1},
                 {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  return server;
}

inline ServerSpec pcie_server() {
  ServerSpec server = nvswitch_server(8, 2);
  server.intra = IntraKind::pcie;
  server.intra_bandwidth = 24_GBps;
  server.socket_bandwidth = 22_GBps;
  return server;
}

// One GPU and one NIC per server, so that servers are the hosts of the textbook's formulas.
inline ClusterSpec hosts(int count, FabricSpec fabric) {
  ClusterSpec cluster;
  cluster.servers = count;
  cluster.server = nvswitch_server(1, 1);
  cluster.server.sockets = 1;
  cluster.fabric = std::move(fabric);
  return cluster;
}

inline FatTree fat_tree(int tiers, int radix, std::vector<double> oversubscription = {}) {
  return {tiers, radix, std::move(oversubscription), 150ns};
}

inline Dragonfly dragonfly(int nics, int routers, int global_links) {
  Dragonfly shape{.nics_per_router = nics,
                  .routers_per_group = routers,
                  .global_links = global_links,
                  .local_bandwidth = {},
                  .global_bandwidth = {}};
  shape.switch_latency = 150ns;
  shape.global_latency = 400ns;
  return shape;
}

// Rack, pod, spine of a large training cluster, 1:7 above the pods.
inline Clos pods() {
  return {{{"rack", 16, 1, 600ns}, {"pod", 64, 1, 900ns}, {"spine", 512, 7, 1200ns}}};
}

inline ClusterSpec cluster_of(int servers, ServerSpec server, FabricSpec fabric) {
  return {servers, std::move(server), std::move(fabric)};
}

inline std::vector<int> first_gpus(int n) {
  std::vector<int> gpus(static_cast<std::size_t>(n));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

inline int count(const Topology& topology, NodeKind kind) {
  return static_cast<int>(std::count_if(topology.nodes().begin(), topology.nodes().end(),
                                        [&](const Node& node) { return node.kind == kind; }));
}

// Links between two kinds of node, in that direction.
inline int count(const Topology& topology, NodeKind from, NodeKind to) {
  int links = 0;
  for (const Link& link : topology.links())
    links += topology.nodes()[link.from].kind == from && topology.nodes()[link.to].kind == to;
  return links;
}

// Fewest links to every node, by breadth-first search over `allowed` links.
template <class Allowed>
std::vector<int> hops_from(const Topology& topology, NodeId source, Allowed allowed) {
  std::vector<std::vector<NodeId>> next(topology.nodes().size());
  for (const Link& link : topology.links())
    if (allowed(link)) next[index(link.from)].push_back(link.to);
  std::vector<int> hops(topology.nodes().size(), -1);
  std::queue<NodeId> queue;
  hops[index(source)] = 0;
  for (queue.push(source); !queue.empty(); queue.pop())
    for (const NodeId node : next[index(queue.front())])
      if (hops[index(node)] < 0) {
        hops[index(node)] = hops[index(queue.front())] + 1;
        queue.push(node);
      }
  return hops;
}

// What `sources` can send to `sinks` at once, by augmenting paths on the graph itself.
double max_flow(const Topology& topology, const std::vector<int>& sources,
                const std::vector<int>& sinks);

}  // namespace trainyard::test
