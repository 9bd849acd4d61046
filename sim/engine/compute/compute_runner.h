// Runs compute ops: one event per op as long as its rate stays, a KernelClock once it has changed.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/event_queue.h"
#include "sim/engine/recorder.h"
#include "sim/engine/run_state.h"

namespace trainyard::engine {

class ComputeRunner {
 public:
  // Pushes events (finish, `kind`, stream, version).
  ComputeRunner(RunState& state, EventQueue& queue, Recorder& recorder, std::uint8_t kind)
      : state_(state), queue_(queue), recorder_(recorder), kind_(kind) {}

  // The head of the stream, a compute op, begins now.
  void begin(std::uint32_t number, StreamState& stream, const ActorState& owner,
             const CompiledOp& op);
  // The head of the stream, a compute op that has begun, goes on with the clock it has come to
  // (null: nothing slowed it down) and ends then, if nothing changes.
  void resume(std::uint32_t number, const KernelClock* clock, Duration end);
  // What transfers hold of the actor may have changed at this instant.
  void change_rate(std::uint32_t actor);
  // False if the event is stale, or comes again, as the op was slowed down. Otherwise the op has
  // ended, its kernels are recorded and its clock is free.
  bool finish(std::uint32_t number, std::uint32_t version);
  // The clock of a running op, StreamState::slot.
  void walk(StateWalk& walk, std::uint32_t clock) { clocks_[clock].walk(walk); }

 private:
  // Units that kernels are without; one is always left, so that no kernel stops altogether.
  std::int64_t taken(std::uint32_t actor) const;
  // The event of an end that is so if as many units stay taken, and no earlier if more are.
  void push_end(std::uint32_t number, Duration end, std::int64_t taken);
  std::uint32_t new_clock();

  RunState& state_;
  EventQueue& queue_;
  Recorder& recorder_;
  std::uint8_t kind_;
  std::vector<KernelClock> clocks_;  // by StreamState::slot
  std::vector<std::uint32_t> free_clocks_;
};

}  // namespace trainyard::engine
