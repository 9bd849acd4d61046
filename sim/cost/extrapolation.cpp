#include "sim/cost/extrapolation.h"

#include <fmt/format.h>

#include "sim/base/text.h"

namespace trainyard::cost {

void Reach::beyond(std::string reason) {
  basis = weaker(basis, Basis::extrapolated);
  if (why.empty()) why = std::move(reason);
}

void Reach::weaken(const Reach& other) {
  basis = weaker(basis, other.basis);
  if (why.empty()) why = other.why;
}

void Reach::check(std::string_view what, std::int64_t size, const SizeRange& range) {
  if (range.most <= 0) return;
  if (size > range.most) beyond(fmt::format("{} is beyond the {} fitted", what, range.most));
  if (size < range.least) beyond(fmt::format("{} is below the {} fitted", what, range.least));
}

void Reach::check(Bytes bytes, Bytes least, Bytes most) {
  if (most <= Bytes(0)) return;
  if (bytes > most) beyond(fmt::format("more bytes than the {} fitted", to_text(most)));
  if (bytes < least) beyond(fmt::format("fewer bytes than the {} fitted", to_text(least)));
}

Reach reach_of(const Provenance& from) {
  if (from.basis != Basis::extrapolated) return {from.basis, {}};
  if (!from.reason.empty()) return {from.basis, from.reason};
  return {from.basis, fmt::format("constants of another machine ({})", from.machine)};
}

}  // namespace trainyard::cost
