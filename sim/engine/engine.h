// Runs programs on a machine and returns what happened. One call, no state outside it, no output.
#pragma once

#include <functional>
#include <vector>

#include "sim/engine/machine.h"
#include "sim/engine/sharing.h"
#include "sim/engine/trace.h"

namespace trainyard {

struct RunOptions {
  Record record = Record::ops;
  std::vector<bool> recorded{};            // by actor; empty: all
  std::uint64_t max_events_per_instant = 1'000'000;  // more at one time is reported as a Deadlock
  const Sharing* sharing = nullptr;        // null: max-min
};

// Requires: indices of programs, actors, communicators and channels are in range; members and channel ends
// agree with the actors' ports; a stream's waits name other streams.
// Cost: O(log pending) per event; one event per op without flows.
Outcome run(const Machine& machine, const RunOptions& options = {});

}  // namespace trainyard
