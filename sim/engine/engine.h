// Runs programs on a machine and returns what happened. One call, no state outside it, no output.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/machine.h"
#include "sim/engine/sharing.h"
#include "sim/engine/trace.h"

namespace trainyard::engine {

class StateWalk;

// Ops of an actor that go on by themselves for a while, always in the same way.
struct Leg {
  // Legs of one id differ in their call, in their place in its block, by which the numbers of all
  // ops are shifted, and by a shift of time. Their programs have the same code (program.h).
  std::uint32_t id = 0;
  ActorId actor{};
  std::uint32_t call = 0;
  std::uint32_t first = 0;  // op of the block
  std::span<const std::uint32_t>
      last{};  // the last of each stream, by their numbers from the first
  Duration begin{}, end{};
};

// Who wants to know what happens while it happens, and keeps no more of it than is needed. Told of
// recorded actors only. What it is told has ended by the instant of the call, and the ends it is
// told of never go back in time.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;

  // Of an op whose own end is still to come; RunOptions::only_kernels_host_may_hold says which.
  virtual void kernel_ended(const KernelSpan& kernel) = 0;
  virtual void op_ended(const Span& op) = 0;
  // Walks over what it keeps, so that periods of a run may be skipped; what it would have been told
  // is then in its sums. False: it wants to be told of all.
  virtual bool walk(StateWalk& /*walk*/) { return false; }
  // Whether it may be told of one actor later than of others, so that ends go back in time from one
  // to the next; those of each actor never do.
  virtual bool may_be_told_late() const { return false; }
  // True: it has counted the ops of the leg as when it was told of them, and is not told again.
  virtual bool leg_begins(const Leg& /*leg*/) { return false; }
  // It has been told of all ops of the leg.
  virtual void leg_ended(const Leg& /*leg*/) {}
};

struct RunOptions {
  Record record = Record::ops;
  std::vector<bool> recorded{};  // by actor; empty: all
  std::vector<bool> kept{};  // of these, by actor: whose ops and memory the trace holds; empty: all
  Observer* observer = nullptr;  // told of recorded actors, whatever is recorded of them
  // With Record::kernels or an observer: leaves out those of ops whose host was done enqueuing when
  // they began. Such kernels follow each other without a gap, from the op's begin to its end.
  bool only_kernels_host_may_hold = false;
  // For every 1,024 actors begun. More at one instant are reported as a Deadlock.
  std::uint64_t max_events_per_instant = 1'000'000;
  const Sharing* sharing = nullptr;  // null: max-min
  // Does not go through what would only repeat (periods/repetition.h), if nothing is recorded and
  // the observer takes part. No result but Trace::skipped tells.
  bool skip_periods = true;
  // Goes at once through what concerns one actor alone (solo/solos.h), if nothing is recorded and
  // the observer may be told late. No result tells.
  bool solos = true;
  // So many stretches of solos are kept to be looked up (solo/solo_stretches.h), those that come
  // first; a thousand are a megabyte. What else happens in solos is gone through op by op.
  std::size_t most_stretches = 16384;
};

// Requires: indices of programs, actors, communicators and channels are in range; members and
// channel ends agree with the actors' ports, and no two ports of an actor name one communicator; a
// stream's waits name other streams.
// Cost: amortised O(1) per event, at most two events per op without flows. Memory: O(actors +
// transfers in flight + calls of programs), unless ops are recorded.
Outcome run(const Machine& machine, const RunOptions& options = {});

}  // namespace trainyard::engine
