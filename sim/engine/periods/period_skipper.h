// Leaves out of a run what would only repeat what it has just done.
//
// Whenever a stream that has most ops goes on to its next call, the state after that instant is
// compared with the last ones, so that a short period is found when it has been gone through once,
// and with one that was kept. That is replaced after 1, 2, 4, ... of these, so that a period of any
// length is found, wherever it begins, after three times as many as that. Nothing is compared as
// long as the streams have not stood at these ops before, as in the warm-up of a pipeline.
//
// Source: Brent, An improved Monte Carlo factorization algorithm, BIT 20 (1980), section 2.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "sim/engine/compute/compute_runner.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/flow_network.h"
#include "sim/engine/memory_accounts.h"
#include "sim/engine/periods/state_walk.h"
#include "sim/engine/run_state.h"

namespace trainyard::engine {

class PeriodSkipper {
 public:
  // Of an engine that has these parts; `observer`: null where there is none. All are kept by
  // reference.
  PeriodSkipper(RunState& state, EventQueue& queue, FlowNetwork& network, MemoryAccounts& memory,
                ComputeRunner& compute, const RunOptions& options);

  // A stream has gone on to its next call.
  void called(std::uint32_t stream) { is_due_ |= stream == watched_; }
  bool is_due() const { return is_due_ && queue_.instant_is_over(); }
  // Moves the state on if that is due; `last` and `events` are members of it, too.
  // Requires: is_due().
  void look(Duration& last, std::uint64_t& events);

  std::uint64_t events_skipped() const { return skipped_; }

 private:
  std::optional<Period> find_period() const;
  void keep();
  bool stood_here();
  bool walk(StateWalk& walk, Duration& last, std::uint64_t& events);
  void walk_actor(StateWalk& walk, std::uint32_t number);
  void walk_head(StateWalk& walk, StreamState& stream, bool in_solo);
  void walk_edge(StateWalk& walk, std::uint32_t number);
  void walk_events(StateWalk& walk);
  void see_exchange(StateWalk& walk, std::uint32_t slot) const;
  Duration busy(std::uint32_t edge) const;

  RunState& state_;
  EventQueue& queue_;
  FlowNetwork& network_;
  MemoryAccounts& memory_;
  ComputeRunner& compute_;
  Observer* observer_;
  std::uint32_t watched_ = kNone;  // kNone: nothing is skipped
  bool is_due_ = false;
  StateImage present_, kept_;
  std::vector<StateImage> recent_;  // a ring
  std::size_t next_ = 0;            // in it
  bool has_kept_ = false;
  std::set<std::uint64_t> stood_;      // hashes of where streams have stood
  std::uint64_t power_ = 1, age_ = 0;  // of the kept state, in states looked at
  std::uint64_t seen_events_ = 0;      // when a state was last looked at
  std::uint64_t skipped_ = 0;
  std::vector<Event> pending_;
};

}  // namespace trainyard::engine
