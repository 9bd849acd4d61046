// Which links a group's rings and a pair's message use.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "sim/lower/rank_classes.h"
#include "topologies/topology.h"

namespace trainyard::lower {

// How many rings a collective splits its bytes over: one inside a server; across servers one for
// every rank that the group has on a server, each entering and leaving at another rank so that all
// their NICs work. Source: NCCL's ring search (connect.cc), cost-models A1.
int ring_count(int servers, int ranks_per_server);

// (from, to) of every edge of those rings. GPUs of one server stay together in each ring.
std::vector<std::pair<int, int>> ring_edges(std::span<const int> gpus, int gpus_per_server);

// Adds the route between two GPUs, on which two players sit, to the structure's paths and returns
// its index. `layout` and `weight`: RankStructure::Path.
struct PathEnd {
  std::uint32_t player = 0;
  int gpu = 0;
};
std::uint32_t add_path(const topologies::Topology& topology, PathEnd from, PathEnd to,
                       RankStructure& structure, std::uint32_t layout = 0, int weight = 1);

}  // namespace trainyard::lower
