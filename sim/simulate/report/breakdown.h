// Where the time of one rank went: every picosecond of the step in one category, decided while the
// step runs from what has ended so far.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/periods/state_walk.h"
#include "sim/engine/program.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/watch/step_window.h"

namespace trainyard::simulate {

// Told where the time of the compute stream goes while no kernel of an op runs, in order.
class GapObserver {
 public:
  virtual ~GapObserver() = default;
  virtual void waited(TimeCategory category, Duration begin, Duration end) = 0;
};

// Where the ops of each stream stand in a program, and what is asked of them, in a few bytes each;
// shared by all ranks that run it.
class StreamIndex {
 public:
  explicit StreamIndex(const engine::Program& program);

  struct Place {
    std::uint32_t call = 0, op = kUnknown;  // unknown: the first of its stream in `call` or later
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct OfOp {
    std::uint32_t next = kUnknown;    // of the same stream in the block; unknown: it is the last
    unsigned waited = 0;              // streams whose transfers can be what it waited for
    unsigned through = 0;             // others, that transfers it waited for waited for themselves:
    std::uint32_t through_until = 0;  // for ops of the block before this one
    unsigned waits = 0;               // streams that it waited for itself
    std::uint8_t stream = 0;
    std::uint8_t group = 0;  // a plan::OpGroup
    bool is_answer = false;  // to what was asked when it began
    bool has_kernels = false;
    bool on_compute_stream = false;
  };
  const OfOp& op(std::uint32_t call, std::uint32_t op) const { return ops_[first_op_[call] + op]; }
  // The op of the same stream that is enqueued after the one given.
  Place after(const OfOp& op, std::uint32_t call) const {
    return op.next == kUnknown ? Place{call + 1, kUnknown} : Place{call, op.next};
  }
  // Makes an unknown op known; where there is none, the call is past the last.
  void find(std::uint32_t stream, Place& place) const;

  const engine::Program& program() const { return program_; }
  unsigned busy() const { return busy_; }  // bit s: stream s has ops

 private:
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

  const engine::Program& program_;
  unsigned busy_ = 0;
  std::vector<std::vector<std::uint32_t>> first_;  // by block, stream; kUnknown: none
  std::vector<OfOp> ops_;                          // block after block
  std::vector<std::uint32_t> first_op_;            // by call, into ops_
};

// For every instant the first that applies: a kernel runs; the compute stream waits for a transfer
// of its own that is in flight; its next kernel is not yet issued by the host; it waits for another
// rank. After the actor's last op it waits for the others until the end.
//   Memory: what has ended and may still lie in a gap of the compute stream, not the step.
class Accountant {
 public:
  // `window` grows while the step runs; what lies outside it is not counted. Both are kept by
  // reference.
  Accountant(const StreamIndex& index, const StepWindow& window, GapObserver* gaps = nullptr);

  void kernel_ended(const engine::KernelSpan& kernel);
  void op_ended(const engine::Span& span);
  // Whether the compute stream has been accounted until then, and nothing more of it is known.
  bool stands_at(Duration at) const { return gaps_.empty() && free_ == at && !held_; }
  // The ops that are told from here on are a leg (engine::Leg). Requires: stands_at() its begin.
  void begin_leg();
  // Nothing where what was before the leg may have named a part of its time. Requires: begun, and
  // stands_at() its end.
  std::optional<Breakdown> end_leg();
  // Another one of its id, in a window that holds it all. Requires: stands_at() its begin.
  void add(const Breakdown& parts, const engine::Leg& leg);
  // Requires: no GapObserver.
  void walk(engine::StateWalk& walk, std::uint32_t actor);
  // All has ended. Invariant: the sum is the window's length, never made so by a remainder.
  Breakdown finish(Duration end);

 private:
  struct Interval {
    Duration begin, end;
    TimeCategory category;
  };
  // Nothing ran on the compute stream from `begin` on until `next` did.
  struct Gap {
    Duration begin{};
    engine::Span next;
  };
  // An op that has ended.
  struct Ended {
    Duration begin{};
    Duration from{}, end{};  // when it was in flight
    std::uint32_t call = 0, op = 0;
    std::uint8_t group = 0;
  };
  class Stream {
   public:
    void add(const Ended& op, Duration needed_from);
    std::span<const Ended> since(Duration begin);
    void walk(engine::StateWalk& walk, std::uint32_t actor, Duration needed_from);

    StreamIndex::Place next;  // the first op that has not ended

   private:
    std::vector<Ended> ended_;  // transfers that may lie in a gap, in order
    std::uint32_t first_ = 0;
  };

  void add(TimeCategory category, Duration begin, Duration end);
  bool is_known(const Gap& gap, unsigned streams, std::uint32_t until);
  bool account_if_known(const Gap& gap);
  void account_known_gaps();
  void account_kernels(const engine::Span& span, const StreamIndex::OfOp& op);
  void add_in_flight(Duration begin, Duration end, unsigned streams,
                     const StreamIndex::Place& until);
  void find_runs();
  void account_idle(Duration begin, Duration end, Duration issued);
  void account(Duration begin, Duration end, Duration issued);

  const StreamIndex& index_;
  const StepWindow& window_;
  GapObserver* observer_;
  unsigned all_;  // bit s: there is a stream s
  std::vector<Stream> streams_;
  std::deque<Gap> gaps_;  // that may wait for transfers which have not ended
  Duration free_{};       // when the last op of the compute stream ended
  Duration running_{};    // kernels of its next one that have ended, in the window
  bool held_ = false;     // there are such kernels: the host may keep them
  Breakdown result_{};
  Breakdown before_{};    // at the begin of a leg
  unsigned told_of_ = 0;  // bit s: of ops of stream s since then
  unsigned asked_ = 0;    // bit s: whether a gap since then was spent on stream s

  // Of the gap that is accounted, kept for their memory.
  std::vector<Interval> intervals_;
  std::vector<Duration> cuts_;
  std::vector<std::span<const Interval>> runs_;
};

}  // namespace trainyard::simulate
