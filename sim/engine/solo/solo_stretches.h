// What actors do in a solo between two of the instants that its table tells of, as a whole: the
// same stretches come again with each micro-batch and each stage.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "sim/engine/solo/solo_table.h"

namespace trainyard::engine {

struct SoloStretch {
  SoloEffect effect;
  // From the begin of the solo.
  Duration begin{};  // of what is told first, or of the op that had begun
  Duration ended{};  // the last of its ops that end
  // What runs behind it: bit s, of stream s; begins and ends, the lowest stream first.
  std::uint32_t runs = 0;
  struct Running {
    Duration begin{}, end{};
  };
  std::array<Running, Solo::kMostStreams> running{};
};

// Those of one table that were asked for.
class SoloStretches {
 public:
  // What SoloTable::told tells from the begin of an op, which it tells of at `entry` (or, if that
  // `has_begun`, from behind it) to `behind`. Null: what runs then has a clock, which a table does
  // not hold, or too many were asked for. Requires: nothing else runs when the op begins.
  const SoloStretch* find(const SoloKind& kind, const SoloTable& table, std::uint32_t entry,
                          bool has_begun, std::uint32_t behind);

 private:
  // Of a solo that is cut short at random, as by ranks out of step, few come again.
  static constexpr std::size_t kMost = 256;

  std::unordered_map<std::uint64_t, SoloStretch> known_;
};

}  // namespace trainyard::engine
