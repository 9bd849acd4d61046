// Clusters of several kinds of servers, and servers of several kinds of GPUs.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/topologies/clusters.h"
#include "topologies/group_placement.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

GpuSpec gpu(const char* name) {
  GpuSpec spec;
  spec.name = name;
  return spec;
}

// Two servers of eight GPUs and NICs, one of four and two whose third GPU is another.
ClusterSpec mixed() {
  ClusterSpec cluster;
  cluster.server = nvswitch_server(8, 8);
  cluster.server.name = "large";
  cluster.server.gpu = gpu("new");
  OtherServers small;
  small.servers = 1;
  small.server = nvswitch_server(4, 2);
  small.server.name = "small";
  small.server.gpu = gpu("old");
  small.server.other_gpus = {{{2}, gpu("odd")}};
  small.server.nic_bandwidth = 10_GBps;
  small.server.nic_latency = 3us;
  cluster.servers = 3;
  cluster.others = {small};
  return cluster;
}

bool complains(const ClusterSpec& cluster, const std::string& pointer) {
  const std::vector<Diagnostic> found = check(cluster);
  return std::any_of(found.begin(), found.end(),
                     [&](const Diagnostic& diagnostic) { return diagnostic.pointer == pointer; });
}

}  // namespace

TEST_CASE("servers of a kind follow those of the kinds before") {
  const ClusterSpec cluster = mixed();
  REQUIRE(check(cluster).empty());
  CHECK(cluster.kind_of(0) == 0);
  CHECK(cluster.kind_of(1) == 0);
  CHECK(cluster.kind_of(2) == 1);
  CHECK(cluster.gpus_in_use() == 8 + 8 + 4);
  CHECK(cluster.gpu_slots() == 8);
  CHECK(cluster.nic_slots() == 8);
  CHECK(cluster.fewest_gpus() == 4);
  CHECK(gpu_kinds(cluster).size() == 3);
  CHECK(gpu_kind_of(cluster, 0, 7) == 0);
  CHECK(gpu_kind_of(cluster, 2, 1) == 1);
  CHECK(gpu_kind_of(cluster, 2, 2) == 2);
  ClusterSpec changed = cluster;
  gpu_of_kind(changed, 2).multiprocessors = 7;
  CHECK(changed.others[0].server.other_gpus[0].gpu.multiprocessors == 7);
  CHECK(gpus_in_words(cluster) == "16 x new, 3 x old, 1 x odd");
  CHECK(servers_in_words(cluster) == "2 x large, 1 x small");
  changed.gpus_used = {8, 0, 2};
  CHECK(gpus_in_words(changed) == "8 x new, 2 x old");
}

TEST_CASE("each server has its own board and NICs, and routes cross both ends' own") {
  const ClusterSpec cluster = mixed();
  const Topology topology(cluster);
  ClusterSpec large = cluster, small = cluster;
  large.others.clear();
  large.servers = 3;
  small.others.clear();
  small.server = cluster.others[0].server;
  small.servers = 3;
  const Topology of_large(large), of_small(small);
  CHECK(topology.links().size() == (2 * of_large.links().size() + of_small.links().size()) / 3);
  CHECK(topology.links()[topology.nic_links(2, 1).first].bandwidth == 10_GBps);
  CHECK(topology.links()[topology.nic_links(1, 7).first].bandwidth == 25_GBps);
  std::vector<int> all;
  for (int server = 0; server < 3; ++server)
    for (int local = 0; local < cluster.server_at(server).gpus; ++local)
      all.push_back(server * cluster.gpu_slots() + local);
  for (const int from : all)
    for (const int to : all) {
      if (from == to) continue;
      CAPTURE(from);
      CAPTURE(to);
      const Route route = topology.route(from, to);
      Duration sum{};
      BytesPerSecond least = 1000_GBps;
      NodeId at = topology.gpu_node(from);
      for (const LinkId link : route.links) {
        CHECK(topology.links()[link].from == at);
        at = topology.links()[link].to;
        sum += topology.links()[link].latency;
        least = std::min(least, topology.links()[link].bandwidth);
      }
      CHECK(at == topology.gpu_node(to));
      CHECK(route.latency == sum);
      CHECK(inter_latency(cluster, from, to) == sum);
      const bool crosses = from / 8 != to / 8;
      const bool meets_small = from / 8 == 2 || to / 8 == 2;
      if (crosses) CHECK(least == (meets_small ? 10_GBps : 25_GBps));
    }
}

TEST_CASE("what is wrong with servers of another kind is said of them") {
  ClusterSpec cluster = mixed();
  cluster.others[0].server.nics = 0;
  CHECK(complains(cluster, "/cluster/other_nodes/0/node/nics"));
  cluster = mixed();
  cluster.others[0].server.other_gpus[0].at = {4};
  CHECK(complains(cluster, "/cluster/other_nodes/0/node/other_gpus/0/at"));
  cluster.others[0].server.other_gpus[0].at = {1, 1};
  CHECK(complains(cluster, "/cluster/other_nodes/0/node/other_gpus/0/at"));
  cluster = mixed();
  cluster.server.intra_bandwidth = BytesPerSecond(0);
  CHECK(complains(cluster, "/cluster/node/intra/bandwidth_per_gpu"));
  cluster = mixed();
  for (int kind = 0; kind < kMostGpuKinds; ++kind)
    cluster.others.push_back(cluster.others[0]);
  cluster.servers += kMostGpuKinds;
  CHECK(complains(cluster, "/cluster/other_nodes"));
}

TEST_CASE("the slowest slot of different GPUs is what PCIe carries, unless the server says it") {
  ServerSpec server = nvswitch_server(2, 0);
  server.intra = IntraKind::pcie;
  server.sockets = 1;
  server.intra_bandwidth = server.pcie_bandwidth = BytesPerSecond(0);
  server.gpu.pcie_bandwidth = 25_GBps;
  server.other_gpus = {{{1}, gpu("old")}};
  server.other_gpus[0].gpu.pcie_bandwidth = 12_GBps;
  CHECK(ring_bandwidth(server, {0, 1}) == 12_GBps);
  server.other_gpus[0].gpu.pcie_bandwidth = 30_GBps;
  CHECK(ring_bandwidth(server, {0, 1}) == 25_GBps);
}
