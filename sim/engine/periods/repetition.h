// Whether a state is an earlier one again, and how often what happened in between will happen
// again.
//
// Theorem. Let two states be equal but for the following: every instant, pending events included,
// is `length` later; the heads of an actor's streams are c calls further on, c being its own;
// numbers of messages and collectives are those of these calls. Let the c calls be followed by
// calls of the same blocks, and let no op that could be influenced by its host be among them, or
// the host take `length` for them too. Then what happens next is what happened in between, `length`
// later, and so on as long as the calls repeat, since the engine decides by nothing but this state
// (StateWalk) and the blocks at hand, and time is an integer. What is summed up grows by the same
// in each period; the most that memory ever was does not change, unless its level grows from period
// to period: then it grows with it, if it did so in the period observed.
//   Streams without ops in these calls may stand still, in whatever state, and so may actors.
//   A host cannot be noticed where it had enqueued all of them before the first began, and takes
//   less for them than they do.
#pragma once

#include <optional>

#include "sim/engine/periods/state_walk.h"
#include "sim/engine/run_state.h"

namespace trainyard::engine {

// Nothing where it will not happen again. Both images must outlive the result. Cost: O(state +
// calls that repeat, once for each program).
std::optional<Period> find_repetition(const RunState& state, const StateImage& before,
                                      const StateImage& after);

}  // namespace trainyard::engine
