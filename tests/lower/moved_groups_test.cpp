#include "sim/lower/moved_groups.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "sim/base/random.h"
#include "sim/lower/group_shape.h"
#include "tests/simulate/toy.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kServers = 16, kGpus = 4;

auto what_prices(const GroupShape& shape) {
  return std::tuple(shape.ranks, shape.servers, shape.ranks_per_server,
                    shape.intra_bandwidth.count(), shape.inter_bandwidth.count(),
                    shape.intra_latency, shape.inter_latency, shape.inside_rings, shape.gpu_kinds);
}

// Of random servers, on each the same or other GPUs.
std::vector<int> random_group(SplitMix64& random) {
  std::vector<int> group;
  const int first = static_cast<int>(random.below(kServers)),
            alike = static_cast<int>(random.below(2));
  const std::uint64_t on_first = 1 + random.below(15);
  for (int server = first; server < kServers && server < first + 3; ++server) {
    const std::uint64_t gpus = alike == 1 ? on_first : 1 + random.below(15);
    for (int gpu = 0; gpu < kGpus; ++gpu)
      if ((gpus >> gpu & 1) != 0) group.push_back(server * kGpus + gpu);
  }
  return group;
}

}  // namespace

TEST_CASE("a group that is found costs what the one costs that was learnt") {
  const ClusterSpec cluster = toy::cluster(kGpus, kServers);
  const std::vector<int> players(kServers, kGpus);
  GroupShapes shapes(cluster, players, false);
  MovedGroups groups(cluster, players, false);
  std::vector<GroupShape> learnt;
  SplitMix64 random(1);
  int found = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<int> group = random_group(random);
    if (group.size() < 2) continue;
    if (const auto known = groups.find(group)) {
      ++found;
      REQUIRE(what_prices(learnt[*known]) == what_prices(shapes.of_group(group)));
      continue;
    }
    CHECK(groups.learn(static_cast<std::uint32_t>(learnt.size())) == learnt.size());
    learnt.push_back(shapes.of_group(group));
  }
  CHECK(found > 20);
}

TEST_CASE("groups are told apart by their places in a server, their distances and their crossing") {
  const std::vector<int> players(kServers, kGpus);
  MovedGroups groups(toy::cluster(kGpus, kServers), players, false);
  const auto ask = [&](std::vector<int> gpus, int crossing = 0) {
    return groups.find(gpus, crossing);
  };
  CHECK_FALSE(ask({0, 4}));
  groups.learn(7);
  CHECK(ask({8, 12}) == 7);
  CHECK_FALSE(ask({1, 5}));  // in another place, beside which the first stays known
  groups.learn(8);
  CHECK(ask({4, 8}) == 7);
  CHECK(ask({9, 13}) == 8);
  CHECK_FALSE(ask({0, 5}));
  groups.learn(9);
  CHECK_FALSE(ask({0, 5}, 4));
  groups.learn(10);
  CHECK(ask({4, 9}, 4) == 10);
  groups.forget();
  CHECK_FALSE(ask({4, 9}, 4));
}

TEST_CASE("where servers are not alike, or routes matter, no group is known") {
  std::vector<int> players(kServers, kGpus);
  const std::vector<int> group = {0, 4}, moved = {4, 8};
  const ClusterSpec cluster = toy::cluster(kGpus, kServers);
  MovedGroups flows(cluster, players, true);
  players[2] = 1;
  MovedGroups uneven(cluster, players, false);
  for (MovedGroups* groups : {&flows, &uneven}) {
    CHECK_FALSE(groups->find(group));
    CHECK(groups->learn(3) == 3);
    CHECK_FALSE(groups->find(moved));
  }
  players[2] = 0;  // on which nobody sits
  MovedGroups part(cluster, players, false);
  CHECK_FALSE(part.find(group));
  part.learn(3);
  CHECK(part.find(moved) == 3);
}
