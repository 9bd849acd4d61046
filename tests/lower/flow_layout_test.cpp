#include "sim/lower/flows/flow_layout.h"

#include <doctest/doctest.h>

#include <map>
#include <vector>

using namespace trainyard;
using namespace trainyard::lower;

TEST_CASE("an edge carries the load of whom it leads to, one for a server the mean of its ranks") {
  topologies::ClusterSpec cluster;
  cluster.servers = 2;
  cluster.server.gpus = 4;
  // The second server has two ranks.
  const std::map<int, double> load = {{0, 0.5}, {1, 1}, {4, 1.25}, {6, 1.75}};
  std::vector<FlowEdge> edges = {{0, 1, 1}, {1, 0, 1}, {0, 4, 1}, {4, 0, 1}, {1, 6, 2, true}};
  load_edges(edges, load, cluster);
  std::vector<double> loads;
  for (const FlowEdge& edge : edges)
    loads.push_back(edge.load);
  CHECK(loads == std::vector<double>{1, 0.5, 1.25, 0.5, 1.5});
}
