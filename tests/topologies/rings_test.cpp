#include "topologies/rings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "sim/base/random.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"
#include "tests/topologies/clusters.h"
#include "topologies/group_placement.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

std::vector<NvlinkPair> uniform_mesh(int gpus, int links) {
  std::vector<NvlinkPair> mesh;
  for (int b = 1; b < gpus; ++b)
    for (int a = 0; a < b; ++a)
      mesh.push_back({a, b, links});
  return mesh;
}

int rings(const std::vector<NvlinkPair>& mesh, int gpus) {
  const RingPacking packing = pack_rings(mesh, first_gpus(gpus));
  CHECK(packing.exact);
  return packing.relays == 0 ? packing.rings : 0;
}

// The same number without any pruning: try every ring, then go on with those after it.
int rings_by_trial(const std::vector<NvlinkPair>& mesh, int n) {
  std::array<std::array<int, 8>, 8> links{};
  for (const NvlinkPair& pair : mesh)
    links[pair.a][pair.b] = links[pair.b][pair.a] = pair.links;
  std::vector<std::vector<int>> orders;
  std::vector<int> order = first_gpus(n);
  do
    orders.push_back(order);
  while (std::next_permutation(order.begin() + 1, order.end()));
  const auto change = [&](const std::vector<int>& ring, int amount) {
    bool fits = true;
    for (int i = 0; i < n; ++i)
      fits &= (links[ring[i]][ring[(i + 1) % n]] += amount) >= 0;
    return fits;
  };
  const std::function<int(std::size_t)> most = [&](std::size_t first) {
    int best = 0;
    for (std::size_t i = first; i < orders.size(); ++i) {
      if (change(orders[i], -1)) best = std::max(best, 1 + most(i));
      change(orders[i], 1);
    }
    return best;
  };
  return most(0);
}

}  // namespace

TEST_CASE("the first 2 to 8 GPUs of a DGX-1V hold 1 2 4 0 2 4 6 rings") {
  const std::vector<int> expected = {1, 2, 4, 0, 2, 4, 6};
  for (int n = 2; n <= 8; ++n) {
    CAPTURE(n);
    CHECK(rings(dgx1v().mesh, n) == expected[static_cast<std::size_t>(n - 2)]);
  }
}

// Where no hop is relayed, so that a ring leaves and enters every GPU once.
TEST_CASE("packed rings pass through all GPUs, on no more links than there are") {
  for (int n = 2; n <= 8; ++n) {
    CAPTURE(n);
    const RingPacking packing = pack_rings(dgx1v().mesh, first_gpus(n));
    std::array<std::array<int, 8>, 8> used{};
    for (const auto& [from, to] : packing.edges)
      ++used[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
    int linked = 0;
    for (const NvlinkPair& pair : dgx1v().mesh) {
      CHECK(used[pair.a][pair.b] <= pair.links);
      CHECK(used[pair.b][pair.a] <= pair.links);
      linked += used[pair.a][pair.b] + used[pair.b][pair.a];
    }
    CHECK(linked == static_cast<int>(packing.edges.size()));
    if (packing.relays > 0) continue;
    const auto size = static_cast<std::size_t>(n);
    REQUIRE(packing.edges.size() == size * static_cast<std::size_t>(packing.rings));
    for (std::size_t ring = 0; ring < packing.edges.size(); ring += size) {
      int at = 0;
      std::size_t hops = 0;
      do {
        at = packing.edges[ring + static_cast<std::size_t>(at)].second;
        ++hops;
      } while (at != 0 && hops < size);
      CHECK(at == 0);
      CHECK(hops == size);
    }
  }
}

TEST_CASE("five GPUs of a DGX-1V form two rings when one hop passes through another GPU") {
  const RingPacking packing = pack_rings(dgx1v().mesh, first_gpus(5));
  CHECK(packing.rings == 2);
  CHECK(packing.relays == 1);
  CHECK(packing.exact);
}

TEST_CASE("ring bandwidth of a DGX-1V is within 5 % of what was measured") {
  // All-reduce bus bandwidth at 1 GB over the first n GPUs, docs/topologies.md.
  const std::vector<double> measured = {22.6, 45.1, 85.4, 37.2, 45.7, 87.0, 134.5};
  for (int n = 2; n <= 8; ++n) {
    CAPTURE(n);
    const double predicted = ring_bandwidth(dgx1v(), first_gpus(n)).count() / 1e9;
    CHECK(predicted == about(measured[static_cast<std::size_t>(n - 2)]).within(0.05));
  }
}

TEST_CASE("a complete mesh splits into n - 1 rings, except for 4 and 6 GPUs") {
  // Tillson, A Hamiltonian decomposition of K*2m, 2m >= 8, J. Combin. Theory B 29 (1980).
  for (int n = 2; n <= 8; ++n) {
    CAPTURE(n);
    CHECK(rings(uniform_mesh(n, 1), n) == (n == 4 || n == 6 ? n - 2 : n - 1));
    CHECK(rings(uniform_mesh(n, 2), n) == 2 * (n - 1));
  }
}

TEST_CASE("wide uniform meshes are settled exactly") {
  CHECK(rings(uniform_mesh(6, 9), 6) == 45);
  CHECK(rings(uniform_mesh(8, 18), 8) == 126);
}

TEST_CASE("the pruned search finds as many rings as trying all of them") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    const int n = 3 + static_cast<int>(random.below(3));
    const std::uint64_t widths = n == 5 ? 3 : 5;  // 0 to 2, or 0 to 4 links
    std::vector<NvlinkPair> mesh;
    for (const NvlinkPair& pair : uniform_mesh(n, 1))
      if (const auto links = static_cast<int>(random.below(widths)))
        mesh.push_back({pair.a, pair.b, links});
    CAPTURE(seed);
    const int expected = rings_by_trial(mesh, n);
    CHECK(rings(mesh, n) == expected);
    found += expected > 0;
  }
  CHECK(found > 50);
}

TEST_CASE("a link may have to stay unused") {
  // Four rings exist, but none where each ring through the first link tried must be kept.
  const std::vector<NvlinkPair> mesh = {{0, 1, 2}, {0, 2, 2}, {1, 2, 2}, {1, 3, 1},
                                        {2, 3, 1}, {2, 4, 1}, {3, 4, 2}, {0, 5, 1},
                                        {2, 5, 2}, {3, 5, 1}, {4, 5, 2}};
  CHECK(rings(mesh, 6) == 4);
}

TEST_CASE("the number of rings does not depend on the order of the group") {
  std::vector<int> gpus = {0, 1, 2, 3, 4, 5};
  do
    CHECK(pack_rings(dgx1v().mesh, gpus).rings == 2);
  while (std::next_permutation(gpus.begin(), gpus.begin() + 4));
}

TEST_CASE("GPUs without a common NVLink use PCIe") {
  CHECK(pack_rings(dgx1v().mesh, std::vector{0, 5}).rings == 0);
  ServerSpec server = dgx1v();
  CHECK(ring_bandwidth(server, {0, 5}).count() == about(32e9 * 5 / 6));
  server.sockets = 1;
  CHECK(ring_bandwidth(server, {0, 5}) == 32_GBps);
}

TEST_CASE("GPUs that only others join by NVLink get a ring through those, not none") {
  ServerSpec star = dgx1v();
  star.gpus = 4;
  star.mesh = {{0, 1, 1}, {0, 2, 1}, {0, 3, 1}};
  star.pcie_bandwidth = BytesPerSecond(0);
  CHECK(pack_rings(star.mesh, std::vector{1, 2}).rings == 0);
  CHECK(ring_bandwidth(star, {1, 2}) == 0.83 * star.intra_bandwidth);
}

TEST_CASE("ring bandwidth of the other boards") {
  CHECK(ring_bandwidth(nvswitch_server(), {1, 6, 3}) == 300_GBps);
  ServerSpec server = pcie_server();
  CHECK(ring_bandwidth(server, {0, 1, 2, 3}) == 24_GBps);
  CHECK(ring_bandwidth(server, {3, 4}).count() == about(20e9));  // 5/6
  server.socket_bandwidth = 10_GBps;
  CHECK(ring_bandwidth(server, {3, 4}) == 10_GBps);
  server.intra = IntraKind::none;
  CHECK(ring_bandwidth(server, {0, 1}) == 12_GBps);  // down to the host's memory and up again
}

TEST_CASE("groups that cross sockets at once divide the link between them") {
  ServerSpec server = pcie_server();
  server.socket_bandwidth = 16_GBps;
  REQUIRE(server.gpus == 8);
  REQUIRE(server.sockets == 2);
  CHECK(crossing_groups(server, {0, 4}, 8) == 4);  // and 1-5, 2-6, 3-7
  CHECK(crossing_groups(server, {2, 6}, 8) == 4);
  CHECK(crossing_groups(server, {0, 4}, 2) == 1);  // nobody else is there
  CHECK(crossing_groups(server, {1, 3, 5, 7}, 8) == 2);
  CHECK(crossing_groups(server, {0, 1, 2, 3, 4, 5, 6, 7}, 8) == 1);
  CHECK(crossing_groups(server, {3, 4}, 8) == 1);  // a pipeline's other pairs do not
  CHECK(crossing_groups(server, {2, 4}, 8) == 2);  // and 3-5
  CHECK(crossing_groups(server, {0, 1, 2, 3}, 8) == 1);
  server.gpus = 6;
  CHECK(crossing_groups(server, {1, 3}, 6) == 1);  // 0-2 does not
  CHECK(ring_bandwidth(pcie_server(), {0, 4}, 1).count() == about(20e9));
  CHECK(ring_bandwidth(pcie_server(), {0, 4}, 2) == 11_GBps);
  CHECK(ring_bandwidth(server, {0, 5}, 4) == 4_GBps);
  CHECK(ring_bandwidth(server, {0, 1}, 4) == 24_GBps);
}
