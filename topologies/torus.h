// A server whose GPUs (chips) are joined to their neighbours in a grid of one to six dimensions, as
// TPU slices are: closed dimensions are rings, open ones lines.
//
// GPU numbers count the last dimension first: on 4 x 4 x 4 the neighbours of GPU 0 are 1 and 3, 4
// and 12, 16 and 48. A route changes the first dimension that differs first, the shorter way round;
// of two equal ways by the parity of where it begins, so that both carry the same.
//
//   Source: Jouppi et al., TPU v4: An Optically Reconfigurable Supercomputer, ISCA 2023, section 2;
//   Dally and Towles, Principles and Practices of Interconnection Networks, 2004, chapter 5.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "topologies/cluster.h"

namespace trainyard::topologies {

// What the links among a group of a torus carry for it.
struct TorusGroup {
  // Directed rings through all members that the links carry at once, each at a link's bandwidth.
  int rings = 1;
  // < 1: what each ring is left of a link, as others use it too.
  double share = 1;
  // Of a collective that goes through one dimension after the other, as its steps: the sum of
  // (size - 1) over the dimensions that the group spans.
  int steps = 1;
  // An all-to-all's bandwidth over that of the rings together; more than 1 where no cycle exists.
  double exchange = 1;
  // The members fill a box, all of whose dimensions are rings: every link in it is in a ring.
  bool closed = false;
};

// The product of the sizes. Requires: at least one dimension.
std::int64_t torus_gpus(const TorusGrid& grid);

// The next GPU along a dimension, up or down; empty at the end of a line, and, so that two GPUs
// that are a whole dimension are joined once, down from either of them.
std::optional<int> torus_neighbour(const TorusGrid& grid, int gpu, std::size_t dimension, bool up);

// The next GPU on the way. Requires: from != to.
int torus_step(const TorusGrid& grid, int from, int to);

// Links between two GPUs.
int torus_hops(const TorusGrid& grid, int from, int to);

// What a group gets of the grid.
//
//   rings  2 d where the group fills a box of d dimensions that are rings of three GPUs or more (a
//          product of d cycles divides into d Hamiltonian cycles, which go both ways; Kotzig 1973
//          for two, Foregger 1978 for more); else both ways (2) round one cycle of a box, if an
//          even dimension or one ring makes it; else one way, along a line and back
//   share  of members with gaps between them: theirs of the arc that they span, as other groups
//          have their members in the gaps; of no box, half, as routes of two hops meet
//   exchange  a rank sends S/n to each: a link of a ring of m carries S m/8, the middle one of a
//          line S m/4, and the busiest dimension decides
//
// Requires: at least two GPUs of the grid, ascending.
TorusGroup torus_group(const TorusGrid& grid, std::span<const int> gpus);

// Who sends to whom in the group's rings: of a closed one every link both ways, which carries what
// one ring does; else the ring through all members, and back where there are two.
std::vector<std::pair<int, int>> torus_edges(const TorusGrid& grid, std::span<const int> gpus);

}  // namespace trainyard::topologies
