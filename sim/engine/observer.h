// Who wants to know what happens while it happens, and keeps no more of it than is needed.
#pragma once

#include "sim/engine/trace.h"

namespace trainyard::engine {

// Told of recorded actors only. What it is told has ended by the instant of the call, and the ends
// it is told of never go back in time.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;

  // Of an op whose own end is still to come; RunOptions::only_kernels_host_may_hold says which.
  virtual void kernel_ended(const KernelSpan& kernel) = 0;
  virtual void op_ended(const Span& op) = 0;
};

}  // namespace trainyard::engine
