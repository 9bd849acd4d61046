// Carries out at once, when it is over or somebody else touches the actor, what happens in a solo
// between the instant it began and then: one event each instead of two for each op.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/engine/event_queue.h"
#include "sim/engine/memory_accounts.h"
#include "sim/engine/recorder.h"
#include "sim/engine/run_state.h"
#include "sim/engine/solo/solo_run.h"
#include "sim/engine/solo/solos.h"

namespace trainyard::engine {

class SoloRunner {
 public:
  // All are kept by reference. Marks the ops of `state` at which an actor may enter a solo.
  SoloRunner(RunState& state, EventQueue& queue, Recorder& recorder, MemoryAccounts& memory,
             const RunOptions& options);

  // The head of the stream has begun now: whether with it a solo, for which its stream stands
  // (ActorState::solo) until the event of its end, or until somebody else touches the actor.
  // Requires: CompiledOp::enters_solo.
  bool begin(std::uint32_t number);
  // The actor whose solo an event ends; null: it is stale.
  ActorState* over(const Event& event);
  // Carries out what of the actor's solo has begun and ended by now, which is over then. The heads
  // of what still runs are in the lanes of the result. Requires: it is in one.
  SoloRun carry_out(ActorState& actor);

 private:
  struct Table {
    Duration length{};
    std::vector<Duration> begin;  // by op of the solo, in the order of the program, from its begin
    std::vector<Duration> lead;   // the latest that the host is done with it or a later one, before
                                  // these begin; from the begin of the call
  };
  struct Kind {
    SoloKind kind;
    std::vector<Table> tables;  // by solo; empty: not asked for yet
  };
  class Sink;

  bool aligned(const ActorState& actor, const StreamState& head, const Solo& solo) const;
  const Table& table(Kind& kind, std::uint32_t solo);
  std::uint32_t find_kind(std::uint32_t actor);

  RunState& state_;
  EventQueue& queue_;
  Recorder& recorder_;
  MemoryAccounts& memory_;
  std::vector<std::uint32_t> kind_of_;  // by actor, into kinds_
  std::deque<Kind> kinds_;
  std::map<std::vector<std::uint64_t>, std::uint32_t> known_kinds_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Solos> solos_;  // by program, alone columns
};

}  // namespace trainyard::engine
