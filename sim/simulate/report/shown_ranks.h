// Which ranks of a step a timeline shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/plan/cast.h"

namespace trainyard::simulate {

struct TimelineLimits {
  int ranks = 64;  // at most so many, spread over the stages
  // Together. The first rank is shown whatever it has.
  std::uint64_t ops = std::numeric_limits<std::uint64_t>::max();
};

// Into Lowered::classes, ascending.
struct ShownClasses {
  std::vector<std::size_t> shown;
  std::vector<std::size_t> left_out;  // as their ops would be too many
  std::uint64_t ops_left_out = 0;     // of these
};

// The first class of every role, those of the first and last stage before those between, then the
// others in turn. `cast`: of the classes' roles.
ShownClasses shown_classes(const lower::Lowered& lowered, const plan::Cast& cast,
                           const TimelineLimits& limits);

}  // namespace trainyard::simulate
