// How many rings an NVLink mesh carries at once.
//
// A ring collective over n GPUs runs at rings * link bandwidth, where the rings are directed
// Hamiltonian cycles over the GPUs and every directed link serves one of them. The largest number
// of such rings is found by exhaustive search.
//
// Where no ring exists, one hop (or as few as make a ring) may pass through another GPU of the
// group.
//
//   Domain: at most 8 GPUs. On the first 2 .. 8 GPUs of a DGX-1V it gives 1 2 4 0 2 4 6.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "topologies/cluster.h"

namespace trainyard::topologies {

struct RingPacking {
  int rings = 0;   // 0: the links do not join the GPUs
  int relays = 0;  // hops of each ring, at most, that pass through another GPU of the group
  // Of all rings: from one GPU of the group to another, joined by a link; a relayed hop is two.
  std::vector<std::pair<int, int>> edges{};
  bool exact = true;  // false: the search was cut short, `rings` exist but more may
};

// Requires: 2 to 8 distinct GPUs, pairs of `mesh` within 0 .. their largest, each pair once.
RingPacking pack_rings(std::span<const NvlinkPair> mesh, std::span<const int> gpus);

}  // namespace trainyard::topologies
