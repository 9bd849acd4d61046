// Kernels beside a transfer slow it down (Machine::share_beside_kernels).
#pragma once

#include <cstdint>
#include <utility>

#include "sim/engine/event_queue.h"
#include "sim/engine/run_state.h"

namespace trainyard::engine {

class BesideKernels {
 public:
  // Both are kept by reference.
  BesideKernels(RunState& state, const EventQueue& queue)
      : state_(state), queue_(queue), lost_(kFullShare - state.machine.share_beside_kernels) {}

  // A compute op of the actor begins (+1) or ends (-1).
  void count(ActorState& actor, int ops) {
    if (lost_ > 0) compute_since(actor).computing += ops;
  }
  // The exchange is in flight from now on.
  void begin(Exchange& exchange) {
    if (lost_ > 0) exchange.busy = busy(exchange);
  }
  // What is left to transfer when all would have been at the full rate, in time at that rate.
  Duration left_over(Exchange& exchange) {
    if (lost_ == 0) return Duration::zero();
    const Duration busy_now = busy(exchange);
    const Duration beside = busy_now - std::exchange(exchange.busy, busy_now);
    return Duration(static_cast<std::int64_t>(Int128{beside.count()} * lost_ / kFullShare));
  }

 private:
  // Brings the actor's account up to now.
  ActorState& compute_since(ActorState& actor) {
    if (actor.computing > 0) actor.busy += queue_.now() - actor.busy_since;
    actor.busy_since = queue_.now();
    return actor;
  }
  Duration busy(const Exchange& exchange) {
    const ActorId actor = state_.is_channel(exchange.edge)
                              ? state_.channel(exchange.edge).source
                              : state_.communicator(exchange.edge).members.front();
    return compute_since(state_.actors[index(actor)]).busy;
  }

  RunState& state_;
  const EventQueue& queue_;
  std::int64_t lost_;  // of kFullShare
};

}  // namespace trainyard::engine
