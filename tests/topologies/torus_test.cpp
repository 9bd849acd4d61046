#include "topologies/torus.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "sim/base/random.h"
#include "tests/support/about.h"
#include "tests/topologies/clusters.h"
#include "topologies/group_placement.h"

using namespace trainyard;
using namespace trainyard::test;
using namespace trainyard::topologies;

namespace {

std::vector<int> all_of(const TorusGrid& grid) {
  std::vector<int> gpus(static_cast<std::size_t>(torus_gpus(grid)));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

// By search, knowing nothing but neighbours.
std::vector<int> distances(const TorusGrid& grid, int from) {
  std::vector<int> distance(static_cast<std::size_t>(torus_gpus(grid)), -1);
  std::queue<int> open;
  open.push(from);
  distance[static_cast<std::size_t>(from)] = 0;
  for (; !open.empty(); open.pop())
    for (std::size_t d = 0; d < grid.sizes.size(); ++d)
      for (const bool up : {false, true})
        if (const auto next = torus_neighbour(grid, open.front(), d, up);
            next && distance[static_cast<std::size_t>(*next)] < 0) {
          distance[static_cast<std::size_t>(*next)] =
              distance[static_cast<std::size_t>(open.front())] + 1;
          open.push(*next);
        }
  return distance;
}

// How many of these messages cross each directed link.
std::map<std::pair<int, int>, int> loads(const TorusGrid& grid,
                                         const std::vector<std::pair<int, int>>& messages) {
  std::map<std::pair<int, int>, int> load;
  for (auto [from, to] : messages)
    while (from != to) {
      const int next = torus_step(grid, from, to);
      ++load[{from, next}];
      from = next;
    }
  return load;
}

int busiest(const std::map<std::pair<int, int>, int>& load) {
  int most = 0;
  for (const auto& [link, count] : load)
    most = std::max(most, count);
  return most;
}

ServerSpec torus_server(std::vector<int> sizes, bool closed = true) {
  ServerSpec server = nvswitch_server(static_cast<int>(torus_gpus({sizes, closed})), 3);
  server.intra = IntraKind::torus;
  server.torus = {std::move(sizes), closed};
  server.intra_bandwidth = 50_GBps;
  return server;
}

const std::vector<TorusGrid>& grids() {
  static const std::vector<TorusGrid> list = {
      {{4, 4, 4}, true}, {{16, 16}, true}, {{5}, true},        {{3, 5}, true},
      {{2, 4}, true},    {{4, 4}, false},  {{2, 2, 2}, true},  {{3, 3}, false},
      {{6, 1}, false},   {{7}, false},     {{2, 3, 4}, false}, {{2, 3, 2, 4}, true}};
  return list;
}

}  // namespace

TEST_CASE("GPU numbers of a torus count its last dimension first") {
  const TorusGrid grid{{4, 4, 4}, true};
  std::set<int> near;
  for (std::size_t d = 0; d < 3; ++d)
    for (const bool up : {false, true})
      near.insert(torus_neighbour(grid, 0, d, up).value());
  CHECK(near == std::set<int>{1, 3, 4, 12, 16, 48});
}

TEST_CASE("a route on a torus is a shortest one, in the graph of the server too") {
  for (const TorusGrid& grid : grids()) {
    const ServerSpec server = torus_server(grid.sizes, grid.closed);
    REQUIRE(check(cluster_of(1, server, SingleSwitch{})).empty());
    const Topology topology(cluster_of(1, server, SingleSwitch{}));
    for (const int from : all_of(grid)) {
      const std::vector<int> distance = distances(grid, from);
      for (const int to : all_of(grid)) {
        CHECK(torus_hops(grid, from, to) == distance[static_cast<std::size_t>(to)]);
        if (from == to) continue;
        const Route route = topology.route(from, to);
        CHECK(static_cast<int>(route.links.size()) == distance[static_cast<std::size_t>(to)]);
        CHECK(route.latency == inter_latency(topology.cluster(), from, to));
      }
    }
  }
}

TEST_CASE(
    "a ring through a box takes no link twice, and all links where all dimensions are rings") {
  for (const TorusGrid& grid : grids()) {
    const std::vector<int> gpus = all_of(grid);
    const TorusGroup group = torus_group(grid, gpus);
    const auto edges = torus_edges(grid, gpus);
    const auto load = loads(grid, edges);
    CHECK(edges.size() == static_cast<std::size_t>(group.rings) * gpus.size());
    CHECK(busiest(load) == 1);
    std::map<int, int> sent;
    for (const auto& [from, to] : edges)
      ++sent[from];
    for (const int gpu : gpus)
      CHECK(sent[gpu] == group.rings);
    const bool rings_only = grid.closed && std::all_of(grid.sizes.begin(), grid.sizes.end(),
                                                       [](int size) { return size > 2; });
    CHECK(group.closed == rings_only);
    if (rings_only) CHECK(group.rings == 2 * static_cast<int>(grid.sizes.size()));
  }
}

TEST_CASE("an odd grid of lines has one ring, an even one two") {
  CHECK(torus_group({{3, 3}, false}, all_of({{3, 3}, false})).rings == 1);
  CHECK(torus_group({{3, 4}, false}, all_of({{3, 4}, false})).rings == 2);
  CHECK(torus_group({{7}, false}, all_of({{7}, false})).rings == 1);
  CHECK(torus_group({{2, 2, 2}, true}, all_of({{2, 2, 2}, true})).rings == 2);
}

TEST_CASE("an all-to-all loads the busiest link as it says, exactly where sizes divide by four") {
  for (const TorusGrid& grid : grids()) {
    const std::vector<int> gpus = all_of(grid);
    std::vector<std::pair<int, int>> messages;
    for (const int from : gpus)
      for (const int to : gpus)
        if (from != to) messages.emplace_back(from, to);
    const TorusGroup group = torus_group(grid, gpus);
    const auto n = static_cast<double>(gpus.size());
    // A rank sends a byte to each: n - 1 bytes over the bandwidth of `exchange` times the rings.
    const double expected = (n - 1) / (group.exchange * group.rings);
    const int load = busiest(loads(grid, messages));
    const bool fours =
        std::all_of(grid.sizes.begin(), grid.sizes.end(), [](int size) { return size % 4 == 0; });
    if (fours) CHECK(expected == about(load));
    CHECK(expected <= load * 1.0000001);
    CHECK(load <= expected * 1.5);
  }
}

TEST_CASE("groups along a dimension share no link, and groups with gaps the links between them") {
  const TorusGrid grid{{4, 6, 3}, true};
  std::vector<std::pair<int, int>> all;
  for (int plane = 0; plane < 4; ++plane) {
    std::vector<int> gpus(18);
    std::iota(gpus.begin(), gpus.end(), 18 * plane);
    CHECK(torus_group(grid, gpus).rings == 4);
    const auto edges = torus_edges(grid, gpus);
    all.insert(all.end(), edges.begin(), edges.end());
  }
  CHECK(busiest(loads(grid, all)) == 1);

  const TorusGrid line{{12}, true};
  std::vector<std::pair<int, int>> apart;
  for (int first = 0; first < 3; ++first) {
    const std::vector<int> gpus = {first, first + 3, first + 6, first + 9};
    const TorusGroup group = torus_group(line, gpus);
    CHECK(group.rings == 2);
    CHECK(group.share == about(1.0 / 3));
    const auto edges = torus_edges(line, gpus);
    apart.insert(apart.end(), edges.begin(), edges.end());
  }
  CHECK(busiest(loads(line, apart)) == 3);
}

TEST_CASE("steps of a collective on a torus are those of its dimensions") {
  CHECK(torus_group({{16, 16}, true}, all_of({{16, 16}, true})).steps == 30);
  CHECK(torus_group({{7}, false}, all_of({{7}, false})).steps == 6);
}

TEST_CASE("bandwidth of a ring on a torus grows with its dimensions") {
  const ServerSpec server = torus_server({4, 4, 4});
  const auto over = [&](std::vector<int> gpus) { return ring_bandwidth(server, gpus).count(); };
  CHECK(over({0, 1, 2, 3}) == 100e9);
  CHECK(over({0, 16, 32, 48}) == 100e9);
  CHECK(over({0, 1}) == 50e9);
  CHECK(over(all_of({{4, 4, 4}, true})) == 300e9);
}

TEST_CASE("servers that are tori reach each other through host bridges and NICs") {
  ServerSpec server = torus_server({3, 4});
  const Topology topology(cluster_of(2, server, SingleSwitch{300ns}));
  SplitMix64 random(7);
  for (int draw = 0; draw < 200; ++draw) {
    const int a = static_cast<int>(random.below(12)), b = 12 + static_cast<int>(random.below(12));
    const Route route = topology.route(a, b);
    NodeId at = topology.gpu_node(a);
    for (const LinkId id : route.links) {
      CHECK(topology.links()[id].from == at);
      CHECK(topology.links()[id].kind != LinkKind::nvlink);
      at = topology.links()[id].to;
    }
    CHECK(at == topology.gpu_node(b));
  }
}

TEST_CASE("a torus of other sizes than its server's GPUs is refused where it stands") {
  const auto pointer = [](ServerSpec server) {
    const auto found = check(cluster_of(1, server, SingleSwitch{}));
    return found.empty() ? std::string() : found.front().pointer;
  };
  ServerSpec server = torus_server({4, 4});
  CHECK(pointer(server).empty());
  server.gpus = 15;
  CHECK(pointer(server) == "/cluster/node/intra/dimensions");
  server.gpus = 0;
  CHECK(pointer(server) == "/cluster/node/gpus");
  server = torus_server({4, 4});
  server.torus.sizes = {4, 0};
  CHECK(pointer(server) == "/cluster/node/intra/dimensions/1");
  server.torus.sizes = {};
  CHECK(pointer(server) == "/cluster/node/intra/dimensions");
  server = nvswitch_server();
  server.torus.sizes = {8};
  CHECK(pointer(server) == "/cluster/node/intra/dimensions");
}

TEST_CASE("the largest pod is built and routed without a table of its pairs") {
  const TorusGrid grid{{16, 20, 28}, true};
  const ServerSpec server = torus_server(grid.sizes);
  REQUIRE(check(cluster_of(1, server, SingleSwitch{})).empty());
  const Topology topology(cluster_of(1, server, SingleSwitch{}));
  CHECK(topology.route(0, 8959).links.size() == 3);
  CHECK(torus_group(grid, all_of(grid)).rings == 6);
}
