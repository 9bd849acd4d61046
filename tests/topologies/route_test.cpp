#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "sim/base/hash.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"
#include "tests/topologies/clusters.h"
#include "topologies/group_placement.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

std::vector<ClusterSpec> every_kind() {
  ServerSpec many_nics = nvswitch_server(4, 8);
  ServerSpec no_rail = nvswitch_server(8, 4);
  no_rail.rail_per_gpu = false;
  ServerSpec host_only = pcie_server();
  host_only.intra = IntraKind::none;
  return {
      cluster_of(1, nvswitch_server(), SingleSwitch{}),
      cluster_of(1, dgx1v(), SingleSwitch{}),
      cluster_of(3, dgx1v(), SingleSwitch{300ns}),
      cluster_of(3, pcie_server(), SingleSwitch{300ns}),
      cluster_of(3, host_only, SingleSwitch{300ns}),
      cluster_of(9, nvswitch_server(), fat_tree(2, 24)),
      cluster_of(9, nvswitch_server(), fat_tree(2, 24, {2})),
      cluster_of(12, many_nics, fat_tree(3, 8)),
      cluster_of(12, no_rail, fat_tree(3, 6, {1, 2})),
      cluster_of(24, nvswitch_server(), pods()),
      hosts(54, fat_tree(3, 6)),
      hosts(72, dragonfly(2, 4, 2)),
      cluster_of(10, no_rail, dragonfly(4, 3, 2)),
      cluster_of(3, nvswitch_server(), dragonfly(8, 4, 0)),
  };
}

bool is_nvlink(const Link& link) {
  return link.kind == LinkKind::nvlink;
}

}  // namespace

TEST_CASE("every route is connected, simple, adds up, and has equal hops both ways") {
  for (const ClusterSpec& cluster : every_kind()) {
    REQUIRE(check(cluster).empty());
    const Topology topology(cluster);
    for (int a = 0; a < topology.gpus(); a += 1 + topology.gpus() / 40)
      for (int b = 0; b < topology.gpus(); ++b) {
        if (a == b) continue;
        const Route route = topology.route(a, b);
        NodeId at = topology.gpu_node(a);
        std::set<NodeId> seen = {at};
        Duration latency{0};
        bool connected = true;
        for (const LinkId id : route.links) {
          const Link& link = topology.links()[id];
          connected = connected && link.from == at && link.bandwidth.count() > 0;
          at = link.to;
          seen.insert(at);
          latency += link.latency;
        }
        CHECK(connected);
        CHECK(at == topology.gpu_node(b));
        CHECK(seen.size() == route.links.size() + 1);
        CHECK(latency == route.latency);
        const Route back = topology.route(b, a);
        CHECK(back.links.size() == route.links.size());
        CHECK(back.latency == route.latency);
        CHECK(topology.route(a, b).links == route.links);
      }
  }
}

TEST_CASE("stripes take every NIC of a GPU as often as the others, and nothing else inside") {
  const ServerSpec six = nvswitch_server(2, 6);
  const ClusterSpec cluster = cluster_of(12, six, fat_tree(3, 8));
  const Topology topology(cluster);
  REQUIRE(stripes(cluster) == 3);
  std::set<std::vector<LinkId>> ways;
  for (int stripe = 0; stripe < 3; ++stripe) {
    const std::vector<LinkId> links = topology.route(1, 20, stripe).links;
    ways.insert(links);
    // GPU 1 has the NICs 3 to 5, GPU 20, which is 0 of its server, 0 to 2.
    const auto [out, unused] = topology.nic_links(0, 3 + stripe);
    const auto [other, in] = topology.nic_links(10, stripe);
    CHECK(std::count(links.begin(), links.end(), out) == 1);
    CHECK(std::count(links.begin(), links.end(), in) == 1);
    CHECK(topology.route(0, 1, stripe).links == topology.route(0, 1).links);
  }
  CHECK(ways.size() == 3);
}

TEST_CASE("no route between servers could have fewer hops once the NICs are chosen") {
  for (const ClusterSpec& cluster : every_kind()) {
    const Topology topology(cluster);
    const auto network = [](const Link& link) { return link.kind == LinkKind::network; };
    for (int b = 1; b < topology.gpus(); ++b) {
      if (topology.server_of(b) == 0) continue;
      const Route route = topology.route(0, b);
      std::vector<Link> links;
      for (const LinkId id : route.links)
        if (network(topology.links()[id])) links.push_back(topology.links()[id]);
      const std::vector<int> hops = hops_from(topology, links.front().from, network);
      CHECK(static_cast<int>(links.size()) == hops[index(links.back().to)]);
    }
  }
}

TEST_CASE("latency without the graph equals latency of the route") {
  for (const ClusterSpec& cluster : every_kind()) {
    if (cluster.server.nics > cluster.server.gpus) continue;
    const Topology topology(cluster);
    for (int b = 1; b < topology.gpus(); ++b)
      CHECK(inter_latency(cluster, 0, b) == topology.route(0, b).latency);
  }
}

TEST_CASE("latency is charged where the header says") {
  const Topology one_switch(cluster_of(2, nvswitch_server(), SingleSwitch{300ns}));
  CHECK(one_switch.route(0, 1).latency == 1500ns);
  CHECK(one_switch.route(0, 8).latency == 2 * 1us + 300ns);
  const Topology tree(hosts(16, fat_tree(3, 4)));
  CHECK(tree.route(0, 15).latency == 2 * 1us + 5 * 150ns);
  const Topology clos(cluster_of(24, nvswitch_server(), pods()));
  CHECK(clos.route(0, 16).latency == 2 * 1us + 2 * 600ns + 900ns);
  CHECK(clos.route(0, 64).latency == 2 * 1us + 2 * 600ns + 2 * 900ns + 1200ns);
}

TEST_CASE("in a mesh a route takes the fewest NVLinks, and PCIe only where NVLink does not reach") {
  const Topology mesh(cluster_of(1, dgx1v(), SingleSwitch{}));
  for (int a = 0; a < 8; ++a) {
    const std::vector<int> hops = hops_from(mesh, mesh.gpu_node(a), is_nvlink);
    for (int b = 0; b < 8; ++b)
      if (a != b)
        CHECK(static_cast<int>(mesh.route(a, b).links.size()) == hops[index(mesh.gpu_node(b))]);
  }
  // 0 to 5 could pass through 1 or through 4: the lower link id wins.
  CHECK(mesh.name(mesh.route(0, 5).links.front()) == "server 0 / GPU 0 -> server 0 / GPU 1");
  CHECK(mesh.links()[mesh.route(0, 3).links.front()].bandwidth.count() == about(2 * 22.4e9));

  ServerSpec pairs = dgx1v();
  pairs.mesh = {{0, 1, 4}, {2, 3, 4}, {4, 5, 4}, {6, 7, 4}};
  const Topology bridged(cluster_of(1, pairs, SingleSwitch{}));
  CHECK(bridged.route(0, 1).links.size() == 1);
  CHECK(bridged.route(0, 2).links.size() == 2);  // one host bridge
  CHECK(bridged.route(0, 7).links.size() == 3);  // over the sockets' link
}

TEST_CASE("GPUs of an NVSwitch never meet on PCIe, and reach a NIC over nothing else") {
  const Topology topology(cluster_of(2, nvswitch_server(), SingleSwitch{}));
  for (const LinkId id : topology.route(0, 1).links)
    CHECK(is_nvlink(topology.links()[id]));
  for (const LinkId id : topology.route(0, 15).links)
    CHECK(!is_nvlink(topology.links()[id]));
}

TEST_CASE("a GPU uses the NIC of its rail") {
  ClusterSpec cluster = cluster_of(2, nvswitch_server(8, 4), SingleSwitch{});
  const auto nic_used = [&](int gpu) {
    const Topology topology(cluster);
    const Route route = topology.route(gpu, 8 + gpu);
    for (int n = 0; n < 4; ++n) {
      const auto [up, down] = topology.nic_links(0, n);
      if (std::count(route.links.begin(), route.links.end(), up) == 1) return n;
      CHECK(std::count(route.links.begin(), route.links.end(), down) == 0);
    }
    return -1;
  };
  for (int gpu = 0; gpu < 8; ++gpu)
    CHECK(nic_used(gpu) == gpu / 2);
  cluster.server.rail_per_gpu = false;
  for (int gpu = 0; gpu < 8; ++gpu)
    CHECK(nic_used(gpu) == gpu % 4);
}

TEST_CASE("PCIe that is not stated never limits") {
  ClusterSpec cluster = cluster_of(2, nvswitch_server(), SingleSwitch{});
  cluster.server.pcie_bandwidth = BytesPerSecond{};
  const Topology topology(cluster);
  for (const LinkId id : topology.route(0, 15).links)
    CHECK(topology.links()[id].bandwidth >= 25_GBps);
}

TEST_CASE("nodes and links have names a person can find") {
  const Topology topology(cluster_of(24, nvswitch_server(), pods()));
  CHECK(topology.name(topology.gpu_node(8 * 3 + 5)) == "server 3 / GPU 5");
  CHECK(topology.name(topology.nic_links(3, 2).first) == "server 3 / NIC 2 -> rack 1");
  CHECK(topology.name(topology.nic_links(23, 7).second) == "rack 11 -> server 23 / NIC 7");
  CHECK(topology.name(topology.route(0, 1).links.front()) ==
        "server 0 / GPU 0 -> server 0 / NVSwitch 0");
  const Route far = topology.route(0, 191);
  CHECK(topology.name(far.links[4]) == "pod 0 -> spine 0");
  std::set<std::string> names;
  for (const NodeId node : topology.nodes().ids())
    names.insert(topology.name(node));
  CHECK(names.size() == topology.nodes().size());
}

TEST_CASE("graph and routes are the same bits everywhere") {
  Hash hash;
  for (const ClusterSpec& cluster : every_kind()) {
    const Topology topology(cluster);
    for (const Link& link : topology.links())
      hash.add(index(link.from))
          .add(index(link.to))
          .add(static_cast<std::uint64_t>(link.latency.count()));
    for (int b = 1; b < topology.gpus(); ++b)
      for (const LinkId id : topology.route(0, b).links)
        hash.add(index(id));
  }
  CHECK(hash.value() == 4028637359736440048ULL);
}
