// Exact parts of a collective's buffer, and what the kinds of collectives have to move.
#pragma once

#include <cstdint>

#include "sim/base/collective_kind.h"
#include "sim/base/units.h"

namespace trainyard::collective {

// numerator / denominator of the buffer S, in lowest terms.
class Share {
 public:
  constexpr Share() = default;
  // Requires: numerator >= 0, denominator > 0.
  Share(std::int64_t numerator, std::int64_t denominator);

  constexpr std::int64_t numerator() const { return numerator_; }
  constexpr std::int64_t denominator() const { return denominator_; }
  double value() const {
    return static_cast<double>(numerator_) / static_cast<double>(denominator_);
  }

  // This part of `buffer`, rounded up to whole bytes. Requires: the result fits 63 bits.
  Bytes of(Bytes buffer) const;

  friend Share operator+(Share a, Share b);
  friend Share operator*(Share a, Share b);
  friend constexpr bool operator==(Share, Share) = default;

 private:
  std::int64_t numerator_ = 0, denominator_ = 1;
};

// What a rank has to send, at least, if the network does not reduce by itself: all-reduce 2(n-1)/n;
// reduce-scatter, all-gather and all-to-all (n-1)/n; broadcast 1 (whoever forwards). n = 1:
// nothing.
Share wire_share(CollectiveKind kind, int group_size);

// busbw / algbw: the same number; what every link would have to carry per byte of the buffer if the
// collective were bandwidth-optimal, so that busbw can be compared with the hardware.
// Source: nccl-tests, doc/PERFORMANCE.md.
double bus_factor(CollectiveKind kind, int group_size);

}  // namespace trainyard::collective
