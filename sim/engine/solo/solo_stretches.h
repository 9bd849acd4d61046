// What actors do in a solo between two of the instants that its table tells of, as a whole: the
// same stretches come again with each micro-batch and each stage.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

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
  std::unique_ptr<const SoloRun> slowed;  // the same, if some of it has a clock
};

// Those of one table that were asked for.
class SoloStretches {
 public:
  // Where a solo begins to be carried out, and where it ends.
  struct Cut {
    std::uint32_t entry = 0, behind = 0;  // into SoloTable::told: the begin of an op, and the end
    bool has_begun = false;               // that op has begun before
    bool at_last = false;                 // the end is the instant of what is told last
    auto operator<=>(const Cut&) const = default;
  };

  // `left`: how many more may be kept. Null: too many were asked for.
  // Requires: nothing else runs when the entry begins.
  const SoloStretch* find(const SoloKind& kind, std::uint32_t solo, const SoloTable& table,
                          const Cut& cut, std::size_t& left);

 private:
  std::map<Cut, SoloStretch> known_;
};

}  // namespace trainyard::engine
