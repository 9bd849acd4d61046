// Groups that lie on other servers as the group before them does, so that what one costs need not
// be found out for each of ten thousands.
#pragma once

#include <span>
#include <vector>

#include "topologies/topology.h"

namespace trainyard::lower {

class MovedGroups {
 public:
  // As of GroupShapes.
  MovedGroups(const topologies::ClusterSpec& cluster, const std::vector<int>& players, bool flows);

  // Whether these GPUs are those of the group asked for before, all moved by so many servers, and
  // servers alike, so that GroupShapes says the same of both.
  bool is_moved(std::span<const int> gpus);
  // No group was before the next one.
  void forget() { before_.clear(); }

 private:
  bool servers_alike_;
  int slots_;
  std::vector<int> before_;
};

}  // namespace trainyard::lower
