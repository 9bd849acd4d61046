#include "topologies/fabric.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/about.h"
#include "tests/support/rooms.h"
#include "tests/topologies/clusters.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

std::vector<int> range(int first, int last) {
  std::vector<int> all;
  for (int i = first; i < last; ++i)
    all.push_back(i);
  return all;
}

// What one half of the hosts can send to the other, in NIC bandwidths.
double bisection(const ClusterSpec& cluster) {
  const int n = cluster.servers * cluster.server.gpus;
  return max_flow(Topology(cluster), range(0, n / 2), range(n / 2, n)) /
         cluster.server.nic_bandwidth.count();
}

std::size_t diameter(const Topology& topology) {
  std::size_t longest = 0;
  for (int b = 1; b < topology.gpus(); ++b)
    longest = std::max(longest, topology.route(0, b).links.size());
  return longest;
}

// The most routes on one link where each host sends to the one so many places on.
int most_shared(const Topology& topology, int shift) {
  std::map<LinkId, int> routes;
  for (int from = 0; from < topology.gpus(); ++from)
    for (const LinkId link : topology.route(from, (from + shift) % topology.gpus()).links)
      ++routes[link];
  return std::max_element(routes.begin(), routes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->second;
}

FabricSpec routed(FatTree tree, Routing routing) {
  tree.routing = routing;
  return tree;
}

}  // namespace

TEST_CASE("a full three-tier fat tree of k-port switches has k^3/4 hosts and 5k^2/4 switches") {
  for (const int k : {4, 6, 8}) {
    CAPTURE(k);
    CHECK(fat_tree_capacity(fat_tree(3, k)) == k * k * k / 4);
    const Topology tree(hosts(k * k * k / 4, fat_tree(3, k)));
    CHECK(count(tree, NodeKind::leaf) == k * k / 2);
    CHECK(count(tree, NodeKind::spine) == k * k / 2);
    CHECK(count(tree, NodeKind::core) == k * k / 4);
    CHECK(count(tree, NodeKind::leaf, NodeKind::spine) == k * k * k / 4);
    CHECK(count(tree, NodeKind::spine, NodeKind::core) == k * k * k / 4);
  }
}

TEST_CASE("a full two-tier fat tree has k^2/2 hosts, k leaves and k/2 spines") {
  for (const int k : {4, 8, 16}) {
    CAPTURE(k);
    CHECK(fat_tree_capacity(fat_tree(2, k)) == k * k / 2);
    const Topology tree(hosts(k * k / 2, fat_tree(2, k)));
    CHECK(count(tree, NodeKind::leaf) == k);
    CHECK(count(tree, NodeKind::spine) == k / 2);
    CHECK(count(tree, NodeKind::leaf, NodeKind::spine) == k * k / 2);
  }
}

TEST_CASE("no switch of a fat tree uses more ports than it has, and full trees use all") {
  for (const int tiers : {2, 3})
    for (const int k : {4, 6, 10})
      for (const double ratio : {1.0, 1.5, 2.0, 3.0})
        for (const int part : {1, 2, 3}) {
          const FatTree spec = fat_tree(tiers, k, {ratio});
          const int capacity = static_cast<int>(fat_tree_capacity(spec));
          if (capacity / part < 2) continue;
          const Topology tree(hosts(capacity / part, spec));
          std::vector<int> ports(tree.nodes().size(), 0);
          for (const Link& link : tree.links())
            ++ports[index(link.from)];
          for (const NodeId node : tree.nodes().ids()) {
            if (tree.nodes()[node].server >= 0) continue;
            CHECK(ports[index(node)] <= k);
            if (part == 1 && ratio == 1.0) CHECK(ports[index(node)] == k);
          }
        }
}

TEST_CASE("small clusters get parallel links to few spines rather than idle spines") {
  // 4 leaves of 8 hosts: 8 uplinks each, 32 in all, which two 16-port spines can take.
  const Topology tree(hosts(32, fat_tree(2, 16)));
  CHECK(count(tree, NodeKind::leaf) == 4);
  CHECK(count(tree, NodeKind::spine) == 2);
  CHECK(count(tree, NodeKind::leaf, NodeKind::spine) == 32);
}

TEST_CASE("half of the hosts of a non-blocking fabric can send to the other half at line rate") {
  CHECK(bisection(hosts(6, SingleSwitch{})) == about(3));
  CHECK(bisection(hosts(32, fat_tree(2, 8))) == about(16));
  CHECK(bisection(hosts(16, fat_tree(2, 8))) == about(8));
  CHECK(bisection(hosts(16, fat_tree(3, 4))) == about(8));
  CHECK(bisection(hosts(54, fat_tree(3, 6))) == about(27));
}

TEST_CASE("oversubscription divides the bisection") {
  // 12 ports: 8 down and 4 up.
  CHECK(tier_ports(12, 2).down == 8);
  CHECK(tier_ports(12, 2).up == 4);
  CHECK(bisection(hosts(96, fat_tree(2, 12, {2}))) == about(24));
  // Three tiers, 2:1 above the leaves and 2:1 above the pods: a quarter.
  CHECK(bisection(hosts(64, fat_tree(3, 6, {2, 2}))) == about(8));
}

TEST_CASE("no tier is more oversubscribed than stated") {
  for (int radix = 2; radix <= 64; ++radix)
    for (const double ratio : {1.0, 1.1, 1.5, 2.0, 3.0, 7.0}) {
      const TierPorts ports = tier_ports(radix, ratio);
      CHECK(ports.down + ports.up <= radix);
      CHECK(ports.down <= ports.up * ratio + 1e-6);
    }
}

TEST_CASE("hops between hosts: 2 links under a leaf, 4 over a spine, 6 over a core") {
  // Each end adds the two PCIe links between GPU and NIC.
  const Topology tree(hosts(16, fat_tree(3, 4)));
  CHECK(tree.route(0, 1).links.size() == 4 + 2);
  CHECK(tree.route(0, 2).links.size() == 4 + 4);
  CHECK(tree.route(0, 4).links.size() == 4 + 6);
  CHECK(diameter(tree) == 10);
  CHECK(diameter(Topology(hosts(32, fat_tree(2, 8)))) == 8);
  CHECK(diameter(Topology(hosts(32, SingleSwitch{}))) == 6);
}

TEST_CASE("a Clos level is one fat link per group, thinned by what lies above") {
  const Topology clos(cluster_of(24, nvswitch_server(), pods()));
  CHECK(count(clos, NodeKind::leaf) == 12);
  CHECK(count(clos, NodeKind::spine) == 3);
  CHECK(count(clos, NodeKind::core) == 1);
  for (const Link& link : clos.links()) {
    const NodeKind from = clos.nodes()[link.from].kind, to = clos.nodes()[link.to].kind;
    if (from == NodeKind::leaf && to == NodeKind::spine)
      CHECK(link.bandwidth.count() == about(16 * 25e9));
    if (from == NodeKind::spine && to == NodeKind::core)
      CHECK(link.bandwidth.count() == about(64 * 25e9 / 7));
  }
  // Two pods of 64 GPUs, 1:7 between them.
  CHECK(bisection(cluster_of(16, nvswitch_server(), pods())) == about(64 / 7.0));
}

TEST_CASE("NIC efficiency applies to every network link, so the ratios stay") {
  ClusterSpec cluster = hosts(16, fat_tree(3, 4));
  cluster.server.nic_efficiency = 0.9;
  const Topology tree(cluster);
  for (const Link& link : tree.links())
    if (link.kind == LinkKind::network) CHECK(link.bandwidth.count() == about(22.5e9));
  CHECK(bisection(cluster) == about(8 * 0.9));
}

TEST_CASE("links are counted by formula: nothing is quadratic in the servers") {
  // Per server: 8 NVSwitch, 8 GPU and 8 NIC cables, 1 between the sockets, 8 to the leaves; above
  // that 16,384 uplinks to spines and 16,384 to cores.
  ClusterSpec cluster = cluster_of(2048, nvswitch_server(), fat_tree(3, 64));
  const Topology tree(cluster);
  CHECK(tree.links().size() == 2 * (2048 * (8 + 8 + 8 + 1 + 8) + 16384 + 16384));
  CHECK(tree.nodes().size() == 2048 * (8 + 1 + 2 + 8) + 512 + 512 + 256);
}

TEST_CASE("ECMP spreads pairs over all uplinks of a leaf") {
  const Topology tree(hosts(32, fat_tree(2, 8)));
  std::set<LinkId> uplinks;
  for (int to = 4; to < 32; ++to)
    uplinks.insert(tree.route(0, to).links[3]);
  CHECK(uplinks.size() == 4);
}

TEST_CASE("by D-mod-k no shift meets on a link of a full tree, by ECMP nearly all do") {
  for (const auto& [count, tree] : {std::pair{32, fat_tree(2, 8)},
                                    {128, fat_tree(3, 8)},
                                    {16, fat_tree(2, 8)} /* two cables each */}) {
    CAPTURE(count);
    const Topology fixed(hosts(count, routed(tree, Routing::d_mod_k)));
    const Topology hashed(hosts(count, tree));
    int met = 0;
    for (int shift = 1; shift < count; ++shift) {
      CAPTURE(shift);
      CHECK(most_shared(fixed, shift) == 1);
      met += most_shared(hashed, shift) > 1 ? 1 : 0;
    }
    CHECK(met > count / 2);
  }
}

TEST_CASE("by D-mod-k a leaf of 2:1 has as many destinations on each uplink") {
  FatTree tree = fat_tree(2, 12);
  tree.oversubscription = {2};  // 8 down, 4 up
  const Topology topology(hosts(64, routed(tree, Routing::d_mod_k)));
  for (const int shift : {8, 16, 24})
    CHECK(most_shared(topology, shift) == 2);
}
