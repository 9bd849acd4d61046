// What a step of a message costs beside its bytes, by its size.
#pragma once

#include <span>

#include "sim/base/units.h"

namespace trainyard {

// At this size the step of a collective takes so much longer than its hop and its bytes.
struct StepTime {
  Bytes bytes;
  Duration time{};
  friend bool operator==(const StepTime&, const StepTime&) = default;
};

// Straight between neighbours, level beyond the ends; none: 0. Requires: bytes that grow.
inline Seconds step_time(std::span<const StepTime> knots, double bytes) {
  if (knots.empty()) return Seconds(0);
  const auto size = [](const StepTime& k) { return static_cast<double>(k.bytes.count()); };
  const auto time = [](const StepTime& k) { return std::chrono::duration_cast<Seconds>(k.time); };
  if (bytes <= size(knots.front())) return time(knots.front());
  for (std::size_t at = 1; at < knots.size(); ++at) {
    const StepTime &low = knots[at - 1], &high = knots[at];
    if (bytes > size(high)) continue;
    return time(low) + (bytes - size(low)) / (size(high) - size(low)) * (time(high) - time(low));
  }
  return time(knots.back());
}

}  // namespace trainyard
