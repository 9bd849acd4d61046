// Groups that lie on other servers as one before them did, so that what they cost need not be found
// out for each of ten thousands.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topologies/topology.h"

namespace trainyard::lower {

class MovedGroups {
 public:
  // As of GroupShapes.
  MovedGroups(const topologies::ClusterSpec& cluster, const std::vector<int>& players, bool flows);

  // What was learnt of the last group that began in the same place of its server, if this one is
  // that one moved by so many servers, and these are alike, so that GroupShapes says the same of
  // both. `crossing`: as of GroupShapes::of_pair, 0 of a collective's group.
  std::optional<std::uint32_t> find(std::span<const int> gpus, int crossing = 0);
  // Remembers this of the group that was asked for last, if that was not found and nothing was
  // learnt since. Returns `what`.
  std::uint32_t learn(std::uint32_t what);
  void forget() {
    known_.clear();
    asked_ = nullptr;
  }

 private:
  struct Known {
    std::vector<int> gpus;
    int crossing = 0;
    std::uint32_t what = 0;
  };

  bool servers_alike_;
  int slots_;
  std::vector<Known> known_;  // by place of the first GPU in its server
  Known* asked_ = nullptr;
};

}  // namespace trainyard::lower
