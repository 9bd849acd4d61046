// Where a number comes from. Every estimate carries its basis and the report adds them up, so that
// a reader knows which share of a step was measured and which was derived.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainyard {

// Ordered from the most to the least trustworthy.
enum class Basis : std::uint8_t { measured, interpolated, extrapolated, analytic };

constexpr std::string_view name(Basis basis) {
  switch (basis) {
    case Basis::measured: return "measured";
    case Basis::interpolated: return "interpolated";
    case Basis::extrapolated: return "extrapolated";
    case Basis::analytic: return "analytic";
  }
  return "?";
}

}  // namespace trainyard
