// What is wrong with a cluster as its author described it.
#pragma once

#include <vector>

#include "sim/base/diagnostic.h"
#include "topologies/cluster.h"

namespace trainyard::topologies {

// Limits that keep every number of the graph in range and a slip of the keyboard from filling
// memory.
inline constexpr int kMostServerGpus = 576;
inline constexpr int kMostTorusGpus = 16384;
inline constexpr int kMostTorusDimensions = 6;
inline constexpr int kMostServerNics = 1024;
inline constexpr int kMostSockets = 16;
inline constexpr int kMostCores = 4096;
inline constexpr int kMostMeshGpus = 8;  // the ring search is exhaustive
inline constexpr int kMostMeshLinks = 64;
inline constexpr int kMostRadix = 4096;
inline constexpr int kMostRouters = 1024;  // of a group of a dragonfly
inline constexpr int kMostGpus = 1 << 20;

// Every problem found, with pointers as a scenario spells them ("/cluster/fabric/radix"); positions
// are empty, the reader of the file fills them in. No error found: Topology(cluster) can be built.
std::vector<Diagnostic> check(const ClusterSpec& cluster);

}  // namespace trainyard::topologies
