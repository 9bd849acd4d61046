// Flows in groups of one rate each, so that what happens to a group costs the same however many
// flows it has.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/base/ids.h"
#include "sim/engine/machine.h"
#include "sim/engine/sharing.h"

namespace trainyard::engine {

class RateGroups {
 public:
  struct Move {
    std::uint32_t flow, to;
  };

  RateGroups() = default;
  RateGroups(const RateGroups&) = delete;
  RateGroups& operator=(const RateGroups&) = delete;
  virtual ~RateGroups() = default;

  // Flows are numbered densely; a number may come again when its flow is gone.
  // Requires: limit >= 1; the path outlives the flow.
  virtual void add(std::uint32_t flow, const Path& path, std::int64_t limit) = 0;
  virtual void remove(std::uint32_t flow) = 0;

  // Divides the bandwidth among the flows there are.
  virtual void divide() = 0;
  // What the last divide() changed: flows in another group or new, each once, and groups of another
  // rate, each at least once.
  const std::vector<Move>& moved() const { return moved_; }
  const std::vector<std::uint32_t>& changed() const { return changed_; }
  // Requires: the group has a flow.
  virtual std::int64_t rate(std::uint32_t group) const = 0;
  // How many groups there may be; their numbers are less.
  virtual std::size_t groups() const = 0;

 protected:
  std::vector<Move> moved_;
  std::vector<std::uint32_t> changed_;
};

// Each flow in a group of its own, with the rates that `sharing` gives to all anew each time.
std::unique_ptr<RateGroups> each_alone(const IdVector<LinkId, std::int64_t>& capacity,
                                       const Sharing& sharing);

}  // namespace trainyard::engine
