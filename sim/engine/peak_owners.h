// Whose the memory of an actor's peak was.
#pragma once

#include <vector>

#include "sim/engine/machine.h"
#include "sim/engine/trace.h"

namespace trainyard::engine {

// What was live at the peak by (category, owner), largest first. Requires: `peak.ended` is known.
// Time: O(ops of the program until then).
std::vector<MemoryChange> owners_of_peak(const Program& program, ActorId actor,
                                         const MemoryPeak& peak);

}  // namespace trainyard::engine
