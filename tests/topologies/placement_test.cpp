#include <doctest/doctest.h>

#include "tests/support/about.h"
#include "tests/support/rooms.h"
#include "tests/topologies/clusters.h"
#include "topologies/group_placement.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

GroupPlacement placed(const std::vector<int>& gpus) {
  return place(cluster_of(4, nvswitch_server(), SingleSwitch{}), gpus);
}

}  // namespace

TEST_CASE("a group inside one server") {
  const GroupPlacement group = placed({10, 8, 15});
  CHECK(group.servers == 1);
  CHECK(group.gpus_per_server == 3);
  CHECK(group.even);
  CHECK(group.local == std::vector{0, 2, 7});
}

TEST_CASE("a rail: the same GPU of every server") {
  const GroupPlacement group = placed({3, 11, 19, 27});
  CHECK(group.servers == 4);
  CHECK(group.gpus_per_server == 1);
  CHECK(group.even);
  CHECK(group.same_local);
  CHECK(group.local == std::vector{3});
}

TEST_CASE("even groups need not hold the same local indices") {
  const GroupPlacement group = placed({0, 1, 10, 11});
  CHECK(group.even);
  CHECK(!group.same_local);
}

TEST_CASE("uneven groups say so, and the first server is that of the first GPU") {
  const GroupPlacement group = placed({9, 8, 0, 31, 10});
  CHECK(group.servers == 3);
  CHECK(group.gpus_per_server == 3);
  CHECK(!group.even);
  CHECK(!group.same_local);
  CHECK(group.local == std::vector{0, 1, 2});
}

TEST_CASE("the NICs of a server add up") {
  ServerSpec server = nvswitch_server(8, 4);
  server.nic_efficiency = 0.9;
  CHECK(server_nic_bandwidth(server).count() == about(90e9));
}

TEST_CASE("more NICs than GPUs are divided among the GPUs") {
  const ServerSpec server = nvswitch_server(3, 8);
  int next = 0;
  for (int gpu = 0; gpu < 3; ++gpu) {
    CHECK(nic_of(server, gpu) == next);
    next += nics_of(server, gpu);
  }
  CHECK(next == 8);
}

TEST_CASE("there are as many stripes as all NICs of a GPU carry alike, of any GPU") {
  const auto of = [](int gpus, int nics) {
    return stripes(cluster_of(2, nvswitch_server(gpus, nics), SingleSwitch{}));
  };
  CHECK(of(8, 4) == 1);
  CHECK(of(8, 8) == 1);
  CHECK(of(8, 32) == 4);
  CHECK(of(3, 8) == 6);  // two or three each
  CHECK(of(1, 100) == 100);
  CHECK(of(8, 76) == 10);  // nine or ten each: 90 would be too many
  CHECK(stripes(cluster_of(1, nvswitch_server(8, 32), SingleSwitch{})) == 1);
  ClusterSpec mixed = cluster_of(2, nvswitch_server(4, 8), SingleSwitch{});
  mixed.others = {{1, nvswitch_server(4, 12)}};
  CHECK(stripes(mixed) == 6);
}
