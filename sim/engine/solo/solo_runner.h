// Carries out at once, when it is over or somebody else touches the actor, what happens in a solo
// between the instant it began and then: one event each instead of two for each op.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/engine/event_queue.h"
#include "sim/engine/memory_accounts.h"
#include "sim/engine/recorder.h"
#include "sim/engine/run_state.h"
#include "sim/engine/solo/solo_groups.h"
#include "sim/engine/solo/solo_run.h"
#include "sim/engine/solo/solo_stretches.h"
#include "sim/engine/solo/solo_table.h"
#include "sim/engine/solo/solos.h"

namespace trainyard::engine {

// What is left of a solo.
struct SoloRest {
  std::uint32_t call = 0;                          // of the solo
  std::uint32_t streams = 0;                       // bit s: it was on stream s of the actor
  std::uint32_t runs = 0;                          // the same: the head of stream s runs
  std::array<Duration, Solo::kMostStreams> end{};  // of these, the lowest stream first
  std::optional<SoloRun> slowed;                   // instead, with clocks: what runs
};

class SoloRunner {
 public:
  // All are kept by reference. Marks the ops of `state` at which an actor may enter a solo.
  SoloRunner(RunState& state, EventQueue& queue, Recorder& recorder, MemoryAccounts& memory,
             const RunOptions& options);

  // The head of the stream begins now: whether with it a solo, for which its stream stands
  // (ActorState::solo) until the event of its end, or until somebody else touches the actor. With
  // the last actor of a group the others enter it, too. Requires: CompiledOp::enters_solo.
  bool begin(std::uint32_t number);
  // Who is in a solo with the actor; empty: nobody else.
  std::span<const ActorId> together(const ActorState& actor) const;
  // The actor whose solo an event ends; null: it is stale.
  ActorState* over(const Event& event);
  // Carries out what of the actor's solo has begun and ended by now, which is over then. What still
  // runs are heads. Adds to Trace::events. Requires: it is in one.
  SoloRest carry_out(ActorState& actor, std::uint64_t& events);

 private:
  struct Kind {
    Kind(SoloKind of, std::uint32_t& next_leg)
        : kind(std::move(of)),
          tables(kind.solos->all().size()),
          stretches(tables.size()),
          legs(next_leg) {}

    SoloKind kind;
    std::vector<SoloTable> tables;         // by solo; empty: not asked for yet
    std::vector<SoloStretches> stretches;  // the same
    LegIds legs;
    bool is_told = false;  // the observer hears of an actor of it
  };
  class Sink;
  class OpByOp;

  bool begin_together(std::uint32_t number, const Solo& solo);
  bool aligned(const ActorState& actor, const StreamState& head, const Solo& solo) const;
  const SoloTable& table(Kind& kind, std::uint32_t solo);
  void go_through(const SoloEffect& effect, ActorState& actor);
  void pass(const SoloStretch& stretch, ActorState& actor, Duration start, SoloRest& rest);
  std::uint32_t find_kind(std::uint32_t actor);
  void count_collectives(std::uint32_t actor, std::uint32_t edge, std::uint32_t count);

  RunState& state_;
  EventQueue& queue_;
  Recorder& recorder_;
  MemoryAccounts& memory_;
  std::optional<SoloGroups> groups_;    // nothing: there are no solos
  std::vector<std::uint32_t> kind_of_;  // by actor, into kinds_
  std::deque<Kind> kinds_;
  std::uint32_t next_leg_ = 0;
  std::size_t stretches_left_;
  std::map<std::vector<std::uint64_t>, std::uint32_t> known_kinds_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Solos> solos_;  // by code, columns
};

}  // namespace trainyard::engine
