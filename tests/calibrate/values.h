// Seeded values for the tests of the probes' kernels; the same everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/random.h"
#include "tests/support/rooms.h"

namespace trainyard {

// Between -2 and 2, no two equal in practice, never 0.
inline std::vector<double> seeded_values(std::size_t count, std::uint64_t seed) {
  std::vector<double> values(count);
  SplitMix64 random(seed);
  for (double& value : values) {
    value = (static_cast<double>(random.next() >> 11) + 0.5) / 4503599627370496.0 * 2 - 2;  // 2^52
  }
  return values;
}

}  // namespace trainyard
