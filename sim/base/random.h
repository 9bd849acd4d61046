// Seeded random numbers that are the same on every machine (no <random> distribution is).
// Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
#pragma once

#include <cstdint>

namespace trainyard {

class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound). Requires: bound > 0. The bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace trainyard
