// How far an estimate is from what a law was fitted on. Private to the room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/cost/compute_laws.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {

struct Reach {
  Basis basis = Basis::analytic;
  std::string why;  // the first reason why it is extrapolated

  // Not what the law was fitted on.
  void beyond(std::string reason);
  // Another law has a part in the estimate.
  void weaken(const Reach& other);
  // beyond() if the size is outside of the range.
  void check(std::string_view what, std::int64_t size, const SizeRange& range);
  void check(Bytes bytes, Bytes least, Bytes most);
};

// Inside everything that the law was fitted on.
Reach reach_of(const Provenance& from);

}  // namespace trainyard::cost
