// Lanes and memory curves as columns of variable-length integers: a tenth of what rows of JSON
// would take, and exact to the picosecond.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/simulate/report/timeline.h"

namespace trainyard::report {

// What of a timeline goes on the page.
struct Selection {
  std::vector<int> ranks;  // ascending
  Duration until{};        // slices that begin later are left out
  std::size_t slices = 0;  // kept
  std::size_t left_out = 0;
};

// Whole ranks while they fit under the cap, stages first, so that every stage is seen before a
// second rank of any. If not even one rank fits, its slices up to an instant.
Selection select(const simulate::Timeline& timeline, std::size_t cap);

// One stream of LEB128 numbers. For each lane of the selection, in order: the count of slices, then
// the columns gap since the previous end, duration, wait before moving, name, kind, micro-batch +
// 1, chunk, bytes, peer + 1, flow. For each curve of a selected rank: the count of samples, then
// the columns step in time and bytes of each category.
std::string pack(const simulate::Timeline& timeline, const Selection& selection);

}  // namespace trainyard::report
