// Says why a run that cannot go on cannot go on.
#pragma once

#include <vector>

#include "sim/engine/run_state.h"
#include "sim/engine/trace.h"

namespace trainyard::engine {

// One line for the head of every unfinished stream, and a cycle of actors that wait for each other.
// `trace` is left empty. O(actors + ops of their blocks).
Deadlock explain_deadlock(const RunState& state, Duration now);

}  // namespace trainyard::engine
