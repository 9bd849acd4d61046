#include "sim/collective/share.h"

#include <limits>
#include <numeric>

#include "sim/base/check.h"

namespace trainyard::collective {

Share::Share(std::int64_t numerator, std::int64_t denominator) {
  TRAINYARD_CHECK(numerator >= 0 && denominator > 0, "share {} / {}", numerator, denominator);
  const std::int64_t common = std::gcd(numerator, denominator);
  numerator_ = numerator / common;
  denominator_ = denominator / common;
}

// In 128 bits, so that nothing overflows but the result.
Bytes Share::of(Bytes buffer) const {
  __extension__ using Wide = __int128;
  const Wide product = static_cast<Wide>(buffer.count()) * numerator_;
  const Wide bytes = (product + denominator_ - 1) / denominator_;
  if (bytes > std::numeric_limits<std::int64_t>::max()) detail::throw_too_large();
  return Bytes(static_cast<std::int64_t>(bytes));
}

Share operator+(Share a, Share b) {
  return Share(a.numerator_ * b.denominator_ + b.numerator_ * a.denominator_,
               a.denominator_ * b.denominator_);
}

Share operator*(Share a, Share b) {
  return Share(a.numerator_ * b.numerator_, a.denominator_ * b.denominator_);
}

Share wire_share(CollectiveKind kind, int group_size) {
  TRAINYARD_CHECK(group_size >= 1, "a group of {}", group_size);
  const int n = group_size;
  switch (kind) {
    case CollectiveKind::all_reduce: return Share(2 * std::int64_t{n - 1}, n);
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all: return Share(n - 1, n);
    case CollectiveKind::broadcast: return Share(n > 1 ? 1 : 0, 1);
    case CollectiveKind::shift: return Share(n > 1 ? 1 : 0, n);
  }
  TRAINYARD_CHECK(false, "collective kind {}", static_cast<int>(kind));
  return {};
}

double bus_factor(CollectiveKind kind, int group_size) {
  return wire_share(kind, group_size).value();
}

}  // namespace trainyard::collective
