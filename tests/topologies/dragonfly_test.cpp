// Dragonflies: links, the way through them, and how evenly they are used.
#include <doctest/doctest.h>

#include <map>

#include "tests/topologies/clusters.h"
#include "topologies/fabric.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

// By pair of groups, links between them; each with ends that are routers.
std::map<std::pair<int, int>, int> cables(const DragonflyLinks& links, int routers) {
  std::map<std::pair<int, int>, int> found;
  links.for_each([&](const DragonflyLinks::Ends& ends) {
    if (ends.global) ++found[{ends.from / routers, ends.to / routers}];
  });
  return found;
}

}  // namespace

TEST_CASE("a balanced dragonfly of 72 hosts is that of Kim et al., figure 5") {
  // p = h = 2, a = 4: nine groups, each pair joined once.
  const ClusterSpec cluster = hosts(72, dragonfly(2, 4, 2));
  REQUIRE(check(cluster).empty());
  const Fabric fabric = build_fabric(cluster, 0, 0);
  REQUIRE(fabric.dragonfly);
  CHECK(fabric.dragonfly->routers() == 36);
  CHECK(fabric.links == 9 * 4 * 3 + 9 * 8);
  const auto found = cables(*fabric.dragonfly, 4);
  CHECK(found.size() == 9 * 8);
  for (const auto& [pair, count] : found)
    CHECK(count == 1);
  CHECK(fabric.dragonfly->oversubscription() == 1);
  // Each router has as many ends of cables as it has ports.
  std::map<int, int> ports;
  fabric.dragonfly->for_each([&](const DragonflyLinks::Ends& ends) {
    if (ends.global) ++ports[ends.from];
  });
  for (const auto& [router, count] : ports)
    CHECK(count == 2);
}

TEST_CASE("every cable has one the other way, between the same routers") {
  for (const Dragonfly& shape : {dragonfly(2, 4, 2), dragonfly(1, 5, 3), dragonfly(3, 2, 4)})
    for (const int count : {10, 23, 30}) {
      const ClusterSpec cluster = hosts(count, shape);
      REQUIRE(check(cluster).empty());
      const Topology topology(cluster);
      std::map<std::pair<NodeId, NodeId>, int> both;
      for (const Link& link : topology.links())
        if (link.kind == LinkKind::network) ++both[{link.from, link.to}];
      for (const auto& [ends, number] : both)
        CHECK(both[{ends.second, ends.first}] == number);
      const auto found = cables(*build_fabric(cluster, 0, 0).dragonfly, shape.routers_per_group);
      for (const auto& [pair, number] : found)
        CHECK(number == found.begin()->second);
      // No router has more ends than ports, and all groups use as many of theirs.
      std::map<int, int> ends;
      build_fabric(cluster, 0, 0).dragonfly->for_each([&](const DragonflyLinks::Ends& link) {
        if (link.global) ++ends[link.from];
      });
      for (const auto& [router, number] : ends)
        CHECK(number <= shape.global_links);
    }
}

TEST_CASE("no way has more than a local link, a cable and a local link") {
  const ClusterSpec cluster = hosts(72, dragonfly(2, 4, 2));
  const Topology topology(cluster);
  std::map<std::size_t, int> lengths;
  for (int a = 0; a < 72; ++a)
    for (int b = 0; b < 72; ++b)
      if (a != b) ++lengths[topology.route(a, b).links.size()];
  // From GPU to NIC to router and back: 4 (over the host bridges 2 more); then up to three.
  CHECK(lengths.size() == 4);
  CHECK(lengths.rbegin()->first - lengths.begin()->first == 3);
  // The other host of a router; those of the three other routers of the group.
  CHECK(lengths.begin()->second == 72);
  // To eight groups by one cable each: an eighth of the pairs of routers of two groups have none
  // of its ends at a local link away, as the cable is between them.
  const int between = 72 * 64;
  CHECK(lengths.rbegin()->second == between * 9 / 16);
}

TEST_CASE("all to all, each cable carries what its pair of groups sends") {
  const ClusterSpec cluster = hosts(72, dragonfly(2, 4, 2));
  const Topology topology(cluster);
  std::map<LinkId, int> load;
  for (int a = 0; a < 72; ++a)
    for (int b = 0; b < 72; ++b)
      if (a != b)
        for (const LinkId id : topology.route(a, b).links)
          ++load[id];
  const Fabric fabric = build_fabric(cluster, 0, 0);
  const std::size_t all = topology.links().size(), links = fabric.links;
  int number = 0;
  fabric.dragonfly->for_each([&](const DragonflyLinks::Ends& ends) {
    const auto id = static_cast<LinkId>(all - links + static_cast<std::size_t>(number++));
    if (ends.global) CHECK(load[id] == 8 * 8);
  });
}

TEST_CASE("a cluster that a dragonfly does not reach is refused with what would") {
  const std::vector<Diagnostic> found = check(hosts(73, dragonfly(2, 4, 2)));
  REQUIRE(found.size() == 1);
  CHECK(found[0].pointer == "/cluster/fabric/global_links");
  CHECK(found[0].message ==
        "groups of 8 NICs with 8 global links each are 9 at most and reach 72 NICs, the cluster "
        "has 73");
  CHECK(found[0].hint == "3 for each router reach them");
  CHECK(check(hosts(73, dragonfly(2, 4, 3))).empty());
  CHECK(!check(hosts(9, dragonfly(2, 4, 0))).empty());
  CHECK(check(hosts(8, dragonfly(2, 4, 0))).empty());
}
