#include "sim/engine/kernel_clock.h"

#include <algorithm>

namespace trainyard::engine {

void KernelClock::enter(const KernelSequence& sequence, std::uint32_t kernel, Duration free) {
  kernel_ = kernel;
  begin_ = at_ = free;
  if (kernel >= sequence.count) return;
  begin_ = at_ = std::max(free, sequence.issued(kernel));
  left_ = Int128{sequence.length(kernel).count()} * (kFullWeight * sequence.units);
}

}  // namespace trainyard::engine
