// Whole parts of integers.
#pragma once

#include <cstdint>

namespace trainyard {

// Work that outgrows 64 bits: bytes times the picoseconds of a second.
using Int128 = __int128;

// ceil(dividend / divisor). Requires: dividend >= 0, divisor >= 1, the quotient fits.
template <class Integer>
constexpr std::int64_t divide_up(Integer dividend, std::int64_t divisor) {
  return static_cast<std::int64_t>((dividend + divisor - 1) / divisor);
}

}  // namespace trainyard
