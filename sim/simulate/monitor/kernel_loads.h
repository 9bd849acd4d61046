// What the kernels of an op are and move. Within an op their mix is even: loads and bytes grow in
// proportion to its time, in whole picoseconds and bytes that add up to those of the op.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/divide.h"
#include "sim/lower/lower.h"
#include "sim/plan/cast.h"
#include "sim/simulate/monitor/loads.h"

namespace trainyard::simulate {

// floor(whole x part / of), so that the shares of neighbouring stretches add up. Requires:
// 0 <= part <= of, of >= 1.
inline std::int64_t share_of(std::int64_t whole, Duration part, Duration of) {
  return static_cast<std::int64_t>(Int128{whole} * part.count() / of.count());
}

struct Stretch {
  Duration begin{}, end{};
};

// The kernels of one role's program.
class KernelLoads {
 public:
  // On a kind of GPUs. All references must outlive this.
  KernelLoads(const plan::Role& role, const plan::Cast& cast, const lower::Lowered& lowered,
              int gpu_kind);

  // Adds what runs during `part` of an op's kernels, which took all of `op`. Requires: `part` lies
  // in `op`.
  void add_segment(std::uint32_t segment, const Stretch& op, const Stretch& part,
                   LoadTimes& times) const;
  std::int64_t segment_bytes(std::uint32_t segment) const { return mixes_[segment].bytes; }
  // Of a position in Program::kernels.
  Load load(std::uint32_t position) const { return loads_[role_.program.kernels[position]]; }
  std::int64_t bytes(std::uint32_t position) const {
    return bytes_[role_.program.kernels[position]];
  }

 private:
  struct Mix {
    std::array<std::int64_t, kLoads> until{};  // nominal time of this load and those before it
    std::int64_t bytes = 0;
  };

  const plan::Role& role_;
  std::vector<Load> loads_;          // by Cast::kernels
  std::vector<std::int64_t> bytes_;  // over memory, the same
  std::vector<Mix> mixes_;           // by segment
};

}  // namespace trainyard::simulate
