// FNV-1a over 64-bit words, for grouping equal things and for determinism tests.
#pragma once

#include <cstdint>

namespace trainyard {

class Hash {
 public:
  Hash& add(std::uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8)
      value_ = (value_ ^ ((word >> shift) & 0xFF)) * 1099511628211ULL;
    return *this;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace trainyard
