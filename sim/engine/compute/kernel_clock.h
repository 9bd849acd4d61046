// How far a compute op has come when its rate changed on the way.
//
// While t of an actor's u units are taken, a kernel of d ps and weight w (in 1/256) advances
// r = 256 u - w t per ps of 256 d u, at least as one unit would. Work is an integer, so a change of
// rate that changes nothing moves nothing: completion is now + ceil(left / r) whenever it is
// computed. A kernel ends on a whole picosecond.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/base/divide.h"
#include "sim/base/units.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/machine.h"
#include "sim/engine/periods/state_walk.h"

namespace trainyard::engine {

// The kernels of one op as one actor runs them.
struct KernelSequence {
  const std::uint32_t* kernels = nullptr;  // the segment's, in Program::kernels
  const KernelTimes* times = nullptr;
  const std::uint16_t* weights = nullptr;  // of `times`; null: all full
  std::uint32_t count = 0;
  std::uint32_t launches = 0;
  Duration launches_from{};
  Duration launch{};
  int units = 1;

  Duration issued(std::uint32_t kernel) const {
    return launches_from + launches_for(kernel, count, launches) * launch;
  }
  Duration length(std::uint32_t kernel) const { return times->kernel[kernels[kernel]]; }
  std::int64_t rate(std::uint32_t kernel, std::int64_t taken) const {
    const std::int64_t weight = weights == nullptr ? kFullWeight : weights[kernels[kernel]];
    const std::int64_t rate = kFullWeight * units - weight * taken;
    return rate < kFullWeight ? kFullWeight : rate;
  }
};

class KernelClock {
 public:
  KernelClock() = default;
  // At the first kernel of an op that begins at `begin`.
  KernelClock(const KernelSequence& sequence, Duration begin, std::int64_t taken) : taken_(taken) {
    enter(sequence, 0, begin);
  }

  // Runs to `until` with as many units taken as now; emit(kernel, begin, end) for every kernel that
  // ends by then. A kernel of length zero that would begin at `until` is left for later.
  template <class Emit>
  void advance(const KernelSequence& sequence, Duration until, const Emit& emit) {
    while (kernel_ < sequence.count && at_ < until) {
      const std::int64_t rate = sequence.rate(kernel_, taken_);
      const std::int64_t needed = divide_up(left_, rate);
      if (needed > (until - at_).count()) {
        left_ -= Int128{(until - at_).count()} * rate;
        at_ = until;
        return;
      }
      const Duration end = later(at_, Duration(needed));
      emit(kernel_, begin_, end);
      enter(sequence, kernel_ + 1, end);
    }
  }

  // When the last kernel ends if as many stay taken; emit as above, for all that are left.
  template <class Emit>
  Duration finish(const KernelSequence& sequence, const Emit& emit) {
    while (kernel_ < sequence.count) {
      const Duration end = later(at_, Duration(divide_up(left_, sequence.rate(kernel_, taken_))));
      emit(kernel_, begin_, end);
      enter(sequence, kernel_ + 1, end);
    }
    return at_;
  }

  // As if all of it were so much later.
  void move_on(Duration by) {
    begin_ = later(begin_, by);
    at_ = later(at_, by);
  }

  void walk(StateWalk& walk) {
    walk.same(kernel_);
    walk.time(begin_);
    walk.time(at_);
    walk.same(static_cast<std::int64_t>(left_));
    walk.same(static_cast<std::int64_t>(left_ >> 64));
    walk.same(taken_);
  }

  std::int64_t taken() const { return taken_; }
  void set_taken(std::int64_t taken) { taken_ = taken; }

 private:
  void enter(const KernelSequence& sequence, std::uint32_t kernel, Duration free) {
    kernel_ = kernel;
    begin_ = at_ = free;
    if (kernel >= sequence.count) return;
    begin_ = at_ = std::max(free, sequence.issued(kernel));
    left_ = Int128{sequence.length(kernel).count()} * (kFullWeight * sequence.units);
  }

  std::uint32_t kernel_ = 0;  // the one that runs or waits for the host
  Duration begin_{};          // of that kernel; may lie ahead
  Duration at_{};             // when left_ is what is left; not before begin_
  Int128 left_ = 0;           // ps x units x kFullWeight
  std::int64_t taken_ = 0;    // units that do not advance it
};

}  // namespace trainyard::engine
