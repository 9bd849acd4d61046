// A sharing divides the bandwidth of links among flows. It keeps no state between calls.
//
// Rates are integers (bytes per second), so that a sum does not depend on its order and a folded
// network gets exactly the rates of the unfolded one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/ids.h"
#include "sim/engine/machine.h"

namespace trainyard::engine {

struct Flow {
  std::span<const PathLink> path;  // the flow takes rate * count of each link
  std::int64_t limit = 0;          // it never gets more
};

class Sharing {
 public:
  virtual ~Sharing() = default;
  // rates[i] belongs to flows[i], each at least 1.
  // Requires: capacities, limits and counts are at least 1.
  virtual void rates(const IdVector<LinkId, std::int64_t>& capacity, std::span<const Flow> flows,
                     std::vector<std::int64_t>& rates) const = 0;
};

// Max-min fairness by progressive filling: all unfrozen flows rise together; those of every link
// that saturates first are frozen at its share, floor(left / users); repeat.
//
//   Invariant: on every link the sum of rate * count is at most the capacity.
//   Invariant: every flow is at its limit, or crosses a link that has less than `users` bytes/s
//              left and on which no flow is faster.
//
// Source: Bertsekas & Gallager, Data Networks, 2nd ed., section 6.5.2.
class MaxMinSharing final : public Sharing {
 public:
  void rates(const IdVector<LinkId, std::int64_t>& capacity, std::span<const Flow> flows,
             std::vector<std::int64_t>& rates) const override;
};

}  // namespace trainyard::engine
