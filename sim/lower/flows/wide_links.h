// Links that are never full, whatever is in flight at once. Flows get without such a link what they
// get with it, so that paths need not name it: ranks whose routes differ only in them are alike,
// and a transfer that crosses nothing else has the rate of its own.
//
// A link carries at most the sum of what all its paths can send at once. It holds nobody back where
// that leaves a byte/s for each of them (shares are floored), or where as many of the fastest
// would fit (engine/flows/incremental_max_min.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "sim/lower/rank_classes.h"

namespace trainyard::lower {

// What a path of an edge carries at most.
struct PathLoad {
  std::int64_t rate = 0;  // bytes/s of one transfer, for each unit of the path's weight
  int at_once = 0;        // transfers of the edge that may be in flight
};

// Takes wide links out of all paths. Of an edge's paths that then cross nothing each layout keeps
// the one of the largest load, if that is larger than the loads of its others; an edge keeps none
// where all cross nothing and have the full load.
// `capacity`: by link, bytes/s. `load`: of an edge (by number) and a layout.
// Cost: linear in the links of paths.
void leave_out_wide_links(RankStructure& structure, std::span<const double> capacity,
                          const std::function<PathLoad(std::size_t, std::uint32_t)>& load);

}  // namespace trainyard::lower
