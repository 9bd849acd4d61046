// Links and paths of a machine in which one stands for each class.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "sim/engine/machine.h"
#include "sim/lower/rank_classes.h"

namespace trainyard::lower {

class FoldedLinks {
 public:
  // `capacity`: by link, bytes/s; empty without flows. Both references must outlive this.
  // Throws OutOfRange if the engine cannot keep a capacity.
  FoldedLinks(const RankStructure& structure, const RankClasses& classes,
              std::span<const double> capacity);

  // By class.
  const IdVector<LinkId, std::int64_t>& capacities() const { return capacities_; }

  struct Paths {
    std::vector<engine::Path> paths;
    std::vector<std::uint32_t> layouts;  // of each: Transfer::layout
    std::vector<std::uint32_t> loads;    // of each: Communicator::loads
  };
  // One path for each class of an edge's paths.
  Paths paths(const RankStructure::Edge& edge) const;

 private:
  const RankStructure& structure_;
  const RankClasses& classes_;
  IdVector<LinkId, std::int64_t> capacities_;
  // How many paths of a class use a link of a class: (path, link) classes.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int32_t> crossings_;
};

}  // namespace trainyard::lower
