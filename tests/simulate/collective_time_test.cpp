// Collectives alone on a cluster: flows against laws, and the laws of algorithms in seconds.
#include "sim/simulate/collective_time.h"

#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/simulate/toy.h"
#include "tests/support/rooms.h"
#include "tests/topologies/clusters.h"
#include "topologies/torus.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

Seconds time(const ClusterSpec& cluster, Fidelity fidelity, CollectiveKind kind,
             const AlgorithmEntry* algorithm, Bytes bytes, int ranks) {
  return simulate::LoneCollectives(cluster, std::vector<simulate::GpuPrice>(1), {ranks}, fidelity)
      .time(kind, {algorithm, {}}, bytes)
      .time;
}

bool close(Seconds a, Seconds b, double error) {
  return std::abs(a / b - 1) <= error;
}

}  // namespace

TEST_CASE("on one idle switch the flows of every algorithm take as long as its law") {
  const ClusterSpec cluster = toy::cluster(8, 1);
  for (const AlgorithmEntry& entry : algorithms())
    for (const CollectiveKind kind : kCollectiveKinds)
      for (const int ranks : {2, 4, 6, 8}) {
        if (!entry.supports(kind, ranks)) continue;
        CAPTURE(entry.name);
        CAPTURE(name(kind));
        CAPTURE(ranks);
        const Seconds law = time(cluster, Fidelity::closed_form, kind, &entry, 64_MiB, ranks);
        CHECK(close(time(cluster, Fidelity::flow, kind, &entry, 64_MiB, ranks), law, 1e-5));
      }
}

TEST_CASE("flows of an algorithm over servers are never faster than its law") {
  const ClusterSpec cluster = toy::cluster(4, 4);
  for (const AlgorithmEntry& entry : algorithms())
    for (const CollectiveKind kind : kCollectiveKinds)
      for (const int ranks : {8, 12, 16}) {
        if (!entry.supports(kind, {ranks, 4})) continue;
        CAPTURE(entry.name);
        CAPTURE(name(kind));
        CAPTURE(ranks);
        const Seconds law = time(cluster, Fidelity::closed_form, kind, &entry, 64_MiB, ranks);
        CHECK(time(cluster, Fidelity::flow, kind, &entry, 64_MiB, ranks) >= law * (1 - 1e-5));
      }
}

// Not of five GPUs of a DGX-1V, whose ring has a relayed hop.
TEST_CASE("inside a server of PCIe or an NVLink mesh flows take as long as the closed form") {
  for (topologies::ServerSpec server : {test::pcie_server(), test::dgx1v()}) {
    ClusterSpec cluster = toy::cluster(8, 1);
    server.gpu = cluster.server.gpu;
    server.socket_bandwidth = 8_GBps;
    cluster.server = server;
    for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                      CollectiveKind::reduce_scatter, CollectiveKind::all_to_all})
      for (const int ranks : {2, 3, 4, 6, 7, 8}) {
        CAPTURE(name(kind));
        CAPTURE(ranks);
        const Seconds law = time(cluster, Fidelity::closed_form, kind, nullptr, 256_MiB, ranks);
        CHECK(close(time(cluster, Fidelity::flow, kind, nullptr, 256_MiB, ranks), law, 1e-3));
      }
  }
}

// 64 chips along one ring, in two and in three dimensions, and a grid of lines.
TEST_CASE("on a torus flows take as long as the law, and exchanges where sizes divide by four") {
  const std::vector<TorusGrid> grids = {
      {{64}, true}, {{8, 8}, true}, {{4, 4, 4}, true}, {{8, 8}, false}, {{3, 21}, true}};
  for (const TorusGrid& grid : grids) {
    ClusterSpec cluster = toy::cluster(static_cast<int>(topologies::torus_gpus(grid)), 1);
    cluster.server.intra = IntraKind::torus;
    cluster.server.torus = grid;
    const int ranks = cluster.server.gpus;
    const auto both = [&](CollectiveKind kind, double error) {
      CAPTURE(name(kind));
      CAPTURE(grid.sizes.size());
      const Seconds law = time(cluster, Fidelity::closed_form, kind, nullptr, 64_MiB, ranks);
      CHECK(close(time(cluster, Fidelity::flow, kind, nullptr, 64_MiB, ranks), law, error));
    };
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter})
      both(kind, 1e-5);
    if (ranks == 64) both(CollectiveKind::all_to_all, 1e-4);
  }
}

TEST_CASE("a sum on a torus of d dimensions moves over 2 d links of each chip") {
  const auto of = [](std::vector<int> sizes) {
    ClusterSpec cluster = toy::cluster(64, 1);
    cluster.server.intra = IntraKind::torus;
    cluster.server.torus = {std::move(sizes), true};
    cluster.server.intra_latency = Duration{0};
    return time(cluster, Fidelity::closed_form, CollectiveKind::all_reduce, nullptr, 64_MiB, 64);
  };
  const double link = toy::cluster(64, 1).server.intra_bandwidth.count();
  const double moved = 2 * 63.0 / 64 * 64 * 1024 * 1024;
  CHECK(close(of({64}), Seconds(moved / link / 2), 1e-9));
  CHECK(close(of({8, 8}), Seconds(moved / link / 4), 1e-9));
  CHECK(close(of({4, 4, 4}), Seconds(moved / link / 6), 1e-9));
}

TEST_CASE("an all-to-all of its own choice is pairwise") {
  const ClusterSpec cluster = toy::cluster(4, 2);
  const AlgorithmEntry* pairwise = find_algorithm("pairwise");
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow})
    CHECK(time(cluster, fidelity, CollectiveKind::all_to_all, nullptr, 64_MiB, 8) ==
          time(cluster, fidelity, CollectiveKind::all_to_all, pairwise, 64_MiB, 8));
}

TEST_CASE("a group that an algorithm cannot serve is refused with those that can") {
  const ClusterSpec cluster = toy::cluster(8, 1);
  simulate::LoneCollectives clock(cluster, std::vector<simulate::GpuPrice>(1), {6},
                                  Fidelity::closed_form);
  try {
    clock.time(CollectiveKind::all_reduce, {find_algorithm("halving_doubling"), {}}, 1_MiB);
    FAIL("accepted");
  } catch (const lower::UnsupportedCollective& refused) {
    CHECK(refused.kind == CollectiveKind::all_reduce);
    CHECK(refused.message.find("needs a power of two of ranks") != std::string::npos);
    CHECK(refused.hint ==
          "possible there: auto, ring, tree, hierarchical, naive, hierarchical_copy");
  }
}

TEST_CASE("what goes to another server as one flow fills every port as pairs do") {
  GroupShape shape;
  shape.ranks = 320;
  shape.servers = 40;
  shape.ranks_per_server = 8;
  std::vector<int> gpus;
  for (int gpu = 0; gpu < 320; ++gpu)
    gpus.push_back(gpu);
  lower::FlowLayouts layouts;
  const auto layout = lower::flow_layout(CollectiveKind::all_to_all, {}, nullptr);
  topologies::ClusterSpec cluster;
  cluster.servers = 40;
  cluster.server.gpus = 8;
  const auto edges = layouts.edges(layout, gpus, cluster, shape);
  CHECK(edges.size() == 320 * (7 + 39));
  std::vector<int> near(320), far_out(320), far_in(320);
  for (const auto& [from, to, weight, for_server, load] : edges) {
    CHECK(load == 1);
    const bool is_near = from / 8 == to / 8;
    CHECK(for_server == !is_near);
    if (is_near) near[static_cast<std::size_t>(from)] += weight;
    if (!is_near) far_out[static_cast<std::size_t>(from)] += weight;
    if (!is_near) far_in[static_cast<std::size_t>(to)] += weight;
  }
  CHECK(near == std::vector<int>(320, 7));
  CHECK(far_out == std::vector<int>(320, 312));
  CHECK(far_in == std::vector<int>(320, 312));
}
