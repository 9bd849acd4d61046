#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "tests/support/rooms.h"
#include "tests/topologies/clusters.h"
#include "topologies/fabric.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

// The pointers of what check() finds after one change to a good cluster of four servers.
std::vector<std::string> wrong(const std::function<void(ClusterSpec&)>& change,
                               FabricSpec fabric = SingleSwitch{},
                               ServerSpec server = nvswitch_server()) {
  ClusterSpec cluster = cluster_of(4, std::move(server), std::move(fabric));
  REQUIRE(check(cluster).empty());
  change(cluster);
  std::vector<std::string> pointers;
  for (const Diagnostic& diagnostic : check(cluster)) {
    CHECK(diagnostic.severity == Severity::error);
    CHECK(!diagnostic.message.empty());
    pointers.push_back(diagnostic.pointer);
  }
  return pointers;
}

using Pointers = std::vector<std::string>;
const auto kNothing = [](ClusterSpec&) {};
const double kNan = std::numeric_limits<double>::quiet_NaN();

FatTree& tree(ClusterSpec& cluster) {
  return std::get<FatTree>(cluster.fabric);
}
Clos& clos(ClusterSpec& cluster) {
  return std::get<Clos>(cluster.fabric);
}

}  // namespace

TEST_CASE("counts out of range are found at their key") {
  CHECK(wrong([](auto& c) { c.servers = 0; }) == Pointers{"/cluster/nodes"});
  CHECK(wrong([](auto& c) { c.servers = 1 << 30; }) == Pointers{"/cluster/nodes"});
  CHECK(wrong([](auto& c) { c.server.gpus = 0; }) == Pointers{"/cluster/node/gpus"});
  CHECK(wrong([](auto& c) { c.server.nics = -1; }) == Pointers{"/cluster/node/nics"});
  CHECK(wrong([](auto& c) { c.server.sockets = 0; }) == Pointers{"/cluster/node/host/sockets"});
}

TEST_CASE("huge numbers are refused or harmless, never wrapped") {
  CHECK(wrong([](auto& c) { c.servers = 1 << 17, c.server.nics = 1024; }) ==
        Pointers{"/cluster/node/nics"});
  CHECK(wrong([](auto& c) { clos(c).levels = {{"", 2147483640, 1, 0ns}}; }, pods()).empty());
  const Topology flat(cluster_of(4, nvswitch_server(8, 64), Clos{{{"", 2147483640, 1, 0ns}}}));
  CHECK(flat.route(0, 31).links.size() == 6);
  ClusterSpec wide = cluster_of(1 << 17, nvswitch_server(8, 32), SingleSwitch{});
  REQUIRE(check(wide).size() == 1);
  CHECK(check(wide)[0].pointer == "/cluster");
}

TEST_CASE("several servers need NICs, one does not") {
  CHECK(wrong([](auto& c) { c.server.nics = 0; }) == Pointers{"/cluster/node/nics"});
  CHECK(wrong([](auto& c) { c.server.nics = 0, c.servers = 1; }).empty());
}

TEST_CASE("bandwidths are positive and finite, latencies are not negative") {
  for (const double bad : {0.0, -1.0, kNan, std::numeric_limits<double>::infinity()}) {
    CHECK(wrong([&](auto& c) { c.server.intra_bandwidth = BytesPerSecond(bad); }) ==
          Pointers{"/cluster/node/intra/bandwidth_per_gpu"});
    CHECK(wrong([&](auto& c) { c.server.nic_bandwidth = BytesPerSecond(bad); }) ==
          Pointers{"/cluster/node/nic/bandwidth"});
    if (bad != 0)
      CHECK(wrong([&](auto& c) { c.server.pcie_bandwidth = BytesPerSecond(bad); }) ==
            Pointers{"/cluster/node/host/pcie_bandwidth"});
  }
  CHECK(wrong([](auto& c) { c.server.nic_latency = -1ns; }) ==
        Pointers{"/cluster/node/nic/latency"});
  CHECK(wrong([](auto& c) { c.server.intra_latency = 2s; }) ==
        Pointers{"/cluster/node/intra/latency"});
  CHECK(wrong([](auto& c) { c.server.nic_efficiency = 1.1; }) ==
        Pointers{"/cluster/node/nic/efficiency"});
  CHECK(wrong([](auto& c) { std::get<SingleSwitch>(c.fabric).switch_latency = -1ns; }) ==
        Pointers{"/cluster/fabric/switch_latency"});
}

TEST_CASE("a mesh names only GPUs it has, no loops, each pair once") {
  const auto add = [](NvlinkPair pair) {
    return wrong([&](auto& c) { c.server.mesh.push_back(pair); }, SingleSwitch{}, dgx1v());
  };
  CHECK(add({0, 8, 1}) == Pointers{"/cluster/node/intra/mesh/16"});
  CHECK(add({-1, 2, 1}) == Pointers{"/cluster/node/intra/mesh/16"});
  CHECK(add({5, 5, 1}) == Pointers{"/cluster/node/intra/mesh/16"});
  CHECK(add({1, 0, 1}) == Pointers{"/cluster/node/intra/mesh/16"});
  CHECK(add({0, 5, 0}) == Pointers{"/cluster/node/intra/mesh/16/links"});
  CHECK(wrong([](auto& c) { c.server.gpus = 9; }, SingleSwitch{}, dgx1v()) ==
        Pointers{"/cluster/node/gpus"});
}

TEST_CASE("a server in two parts is refused with both parts") {
  ServerSpec server = dgx1v();
  server.nics = 0;
  server.pcie_bandwidth = BytesPerSecond{};
  server.mesh = {{0, 1, 1}, {2, 3, 1}};
  server.gpus = 4;
  const std::vector<Diagnostic> found = check(cluster_of(1, server, SingleSwitch{}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].pointer == "/cluster/node/intra/mesh");
  CHECK(found[0].message == "no link joins GPUs 0, 1 with GPUs 2, 3; 0 and 2 have no route");
  server.pcie_bandwidth = 12_GBps;
  CHECK(check(cluster_of(1, server, SingleSwitch{})).empty());
}

TEST_CASE("PCIe servers need a PCIe bandwidth, whatever NICs they have") {
  ServerSpec server = pcie_server();
  server.intra_bandwidth = server.pcie_bandwidth = BytesPerSecond{};
  server.nic_bandwidth = 25_GBps;
  for (const int nics : {0, 1, 8}) {
    server.nics = nics;
    const std::vector<Diagnostic> found = check(cluster_of(1, server, SingleSwitch{}));
    REQUIRE(found.size() == 1);
    CHECK(found[0].pointer == "/cluster/node/intra/bandwidth_per_gpu");
  }
  server.gpu.pcie_bandwidth = 12_GBps;
  CHECK(check(cluster_of(1, server, SingleSwitch{})).empty());
}

TEST_CASE("a radix too small for the servers is refused, with the one that fits") {
  const ClusterSpec cluster = hosts(17, fat_tree(3, 4));
  const std::vector<Diagnostic> found = check(cluster);
  REQUIRE(found.size() == 1);
  CHECK(found[0].pointer == "/cluster/fabric/radix");
  CHECK(found[0].message == "3 tiers of 4-port switches reach 16 NICs, the cluster has 17");
  CHECK(found[0].hint == "radix 5 is the smallest that does");
  CHECK(check(hosts(static_cast<int>(fat_tree_capacity(fat_tree(3, 5))), fat_tree(3, 5))).empty());
  CHECK(check(hosts(16, fat_tree(3, 4))).empty());
}

TEST_CASE(
    "a ratio that leaves a switch no uplink is refused, with the largest and the radix for it") {
  const std::vector<Diagnostic> found = check(hosts(32, fat_tree(2, 40, {100})));
  REQUIRE(found.size() == 1);
  CHECK(found[0].pointer == "/cluster/fabric/oversubscription/0");
  CHECK(found[0].message == "100 to 1 leaves a switch of 40 ports no uplink");
  CHECK(found[0].hint == "at most 39, or radix 101");
  CHECK(check(hosts(32, fat_tree(2, 40, {39}))).empty());
  CHECK(check(hosts(32, fat_tree(2, 101, {100}))).empty());
}

TEST_CASE("fat trees: tiers and oversubscription") {
  const FatTree good = fat_tree(3, 40, {1, 1, 1});
  CHECK(wrong(kNothing, good).empty());
  CHECK(wrong([](auto& c) { tree(c).tiers = 4; }, good) == Pointers{"/cluster/fabric/tiers"});
  CHECK(wrong([](auto& c) { tree(c).radix = 1; }, good) == Pointers{"/cluster/fabric/radix"});
  for (const double bad : {0.5, 0.0, -2.0, kNan})
    CHECK(wrong([&](auto& c) { tree(c).oversubscription[1] = bad; }, good) ==
          Pointers{"/cluster/fabric/oversubscription/1"});
  // The top tier has no uplinks, so a ratio there would be silently ignored.
  CHECK(wrong([](auto& c) { tree(c).oversubscription[2] = 2; }, good) ==
        Pointers{"/cluster/fabric/oversubscription/2"});
}

TEST_CASE("Clos levels grow by whole parts up to the whole cluster") {
  CHECK(wrong(kNothing, pods()).empty());
  CHECK(wrong([](auto& c) { clos(c).levels.clear(); }, pods()) ==
        Pointers{"/cluster/fabric/levels"});
  CHECK(wrong([](auto& c) { clos(c).levels[0].gpus = 12; }, pods()) ==
        Pointers{"/cluster/fabric/levels/0/gpus", "/cluster/fabric/levels/1/gpus"});
  CHECK(wrong([](auto& c) { clos(c).levels[1].gpus = 8; }, pods()) ==
        Pointers{"/cluster/fabric/levels/1/gpus"});
  CHECK(wrong([](auto& c) { c.servers = 65; }, pods()) ==
        Pointers{"/cluster/fabric/levels/2/gpus"});
  CHECK(wrong([](auto& c) { clos(c).levels[2].oversubscription = 0.5; }, pods()) ==
        Pointers{"/cluster/fabric/levels/2/oversubscription"});
  CHECK(wrong([](auto& c) { clos(c).levels[0].oversubscription = 2; }, pods()) ==
        Pointers{"/cluster/fabric/levels/0/oversubscription"});
}

TEST_CASE("all problems are reported at once") {
  CHECK(wrong(
            [](auto& c) {
              c.server.nics = 0;
              c.server.sockets = 99;
              tree(c).radix = 1;
            },
            fat_tree(2, 40)) ==
        Pointers{"/cluster/node/host/sockets", "/cluster/node/nics", "/cluster/fabric/radix"});
}
