// Whole parts of integers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"

namespace trainyard {

// Work that outgrows 64 bits: bytes times the picoseconds of a second.
using Int128 = __int128;

// ceil(dividend / divisor). Requires: dividend >= 0, divisor >= 1. Throws OutOfRange if the
// quotient has more than 62 bits.
template <class Integer>
constexpr std::int64_t divide_up(Integer dividend, std::int64_t divisor) {
  if constexpr (sizeof(Integer) > sizeof(std::int64_t)) {
    // Most fit into 64 bits, whose division is an instruction.
    if (dividend <= kEndOfTime.count() - divisor)
      return (static_cast<std::int64_t>(dividend) + divisor - 1) / divisor;
  }
  const Integer quotient = (dividend + divisor - 1) / divisor;
  if (quotient > kEndOfTime.count()) detail::throw_too_large();
  return static_cast<std::int64_t>(quotient);
}

// Ascending; none of 0 and below. Time: as the square root.
inline std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    found.push_back(i);
    if (i != number / i) found.push_back(number / i);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace trainyard
