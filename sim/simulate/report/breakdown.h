// Where the time of one rank went: every picosecond of the step in one category, decided while the
// step runs from what has ended so far.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
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

// Where the ops of each stream stand in a program; shared by all ranks that run it.
class StreamIndex {
 public:
  explicit StreamIndex(const engine::Program& program);

  struct Place {
    std::uint32_t call = 0, op = kUnknown;  // unknown: the first of its stream in `call` or later
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // The op of the same stream that is enqueued after the one given.
  Place after(const engine::Span& span) const;
  // Makes an unknown op known; where there is none, the call is past the last.
  void find(std::uint32_t stream, Place& place) const;

  const engine::Program& program() const { return program_; }
  const engine::Op& op(std::uint32_t call, std::uint32_t op) const { return program_.op(call, op); }

 private:
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

  const engine::Program& program_;
  std::vector<std::vector<std::uint32_t>> first_;  // by block, stream; kUnknown: none
  std::vector<std::vector<std::uint32_t>> next_;   // by block, op; kUnknown: none
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
  // Transfers of a stream that have ended and may lie in a gap, in order.
  class Ended {
   public:
    void add(const engine::Span& span, Duration needed_from);
    std::span<const engine::Span> since(Duration begin);
    void walk(engine::StateWalk& walk, Duration needed_from);

   private:
    std::vector<engine::Span> spans_;
    std::size_t first_ = 0;
  };

  const engine::Op& op(const engine::Span& span) const { return index_.op(span.call, span.op); }
  void add(TimeCategory category, Duration begin, Duration end);
  bool is_known(const Gap& gap, unsigned waits);
  bool account_if_known(const Gap& gap);
  void account_known_gaps();
  void account_kernels(const engine::Span& span);
  void find_in_flight(Duration begin, Duration end, unsigned waits, const engine::Span* until);
  void find_runs();
  void account_idle(Duration begin, Duration end, Duration issued);
  void account(Duration begin, Duration end, Duration issued);

  const StreamIndex& index_;
  const StepWindow& window_;
  GapObserver* observer_;
  unsigned all_;  // bit s: there is a stream s
  std::vector<Ended> streams_;
  std::vector<StreamIndex::Place> next_;  // by stream: the first op that has not ended
  std::deque<Gap> gaps_;                  // that may wait for transfers which have not ended
  Duration free_{};                       // when the last op of the compute stream ended
  Duration running_{};                    // kernels of its next one that have ended, in the window
  bool held_ = false;                     // there are such kernels: the host may keep them
  Breakdown result_{};

  // Of the gap that is accounted, kept for their memory.
  std::vector<Interval> intervals_;
  std::vector<Duration> cuts_;
  std::vector<std::span<const Interval>> runs_;
};

}  // namespace trainyard::simulate
