// Which of equal ways a route takes.
//
// D-mod-k sends each NIC's messages up over a way of its own, so that whoever shifts (each to the
// one so many places on) meets nobody in a tree of full bandwidth, and equal shares of destinations
// take equal ways. Source: Zahavi, Fat-Tree Routing and Node Ordering Providing Contention Free
// Traffic for MPI Global Collectives, IPDPS Workshops 2011.
#pragma once

#include <cstdint>

#include "sim/base/random.h"
#include "topologies/cluster.h"

namespace trainyard::topologies {

class WayChoice {
 public:
  // `hash`: of the two ends. `destination`: the number of the NIC that the route leads to.
  WayChoice(Routing routing, SplitMix64 hash, std::int64_t destination)
      : by_destination_(routing == Routing::d_mod_k), hash_(hash), destination_(destination) {}

  // Of so many switches or cables. Requires: at least one.
  int among(int ways) {
    if (!by_destination_) return static_cast<int>(hash_.below(static_cast<std::uint64_t>(ways)));
    const auto way = static_cast<int>(destination_ % ways);
    destination_ /= ways;
    return way;
  }
  // Of parallel cables down to where `up` was chosen as the way up. Requires: at least one.
  int cable(int up, int cables) { return by_destination_ ? up % cables : among(cables); }

 private:
  bool by_destination_;
  SplitMix64 hash_;
  std::int64_t destination_;  // what choices have left of it
};

}  // namespace trainyard::topologies
