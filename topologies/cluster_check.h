// What is wrong with a cluster as its author described it.
#pragma once

#include <vector>

#include "sim/base/diagnostic.h"
#include "topologies/cluster.h"

namespace trainyard::topologies {

// Every problem found, with pointers as a scenario spells them ("/cluster/fabric/radix"); positions
// are empty, the reader of the file fills them in. No error found: Topology(cluster) can be built.
std::vector<Diagnostic> check(const ClusterSpec& cluster);

}  // namespace trainyard::topologies
