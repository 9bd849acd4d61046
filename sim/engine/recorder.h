// Writes the trace of a run: spans straight to their place in the final order, so nothing is
// sorted.
#pragma once

#include <vector>

#include "sim/engine/run_state.h"
#include "sim/engine/trace.h"

namespace trainyard::engine {

class Recorder {
 public:
  Recorder(const RunState& state, const RunOptions& options);

  // Whether the observer or the trace is told of an actor.
  bool tells_of(std::uint32_t actor) const { return tells_ && (told_.empty() || told_[actor]); }
  bool wants_kernels(const StreamState& stream) const {
    if ((!kernels_ && observer_ == nullptr) || !tells_of(stream.actor)) return false;
    return !only_held_ || host_may_hold(stream);
  }
  void kernel(const StreamState& stream, std::uint32_t kernel, Duration begin, Duration end);
  // The head of the stream ends; it is still the head.
  void op(const StreamState& stream, Duration active, Duration end) {
    if (tells_of(stream.actor)) record(stream, active, end);
  }
  void memory(const StreamState& stream, const MemoryEffect& effect, Duration at);
  // Observer::leg_begins; true where nobody is told.
  bool leg_begins(const Leg& leg) {
    return !tells_of(static_cast<std::uint32_t>(leg.actor)) || observer_->leg_begins(leg);
  }
  void leg_ended(const Leg& leg) {
    if (tells_of(static_cast<std::uint32_t>(leg.actor))) observer_->leg_ended(leg);
  }

  // The trace of what was recorded; `peaks` is left empty.
  Trace take(std::uint64_t events);

 private:
  void record(const StreamState& stream, Duration active, Duration end);
  // Whether the host still enqueued kernels of the head, which runs, when it began.
  bool host_may_hold(const StreamState& stream) const;
  void sort_kernels();

  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

  const RunState& state_;
  bool kernels_, only_held_;
  Observer* observer_;
  bool tells_;
  std::vector<bool> told_;               // RunOptions::recorded
  std::vector<std::size_t> first_span_;  // by actor; kNowhere: its spans are not kept
  Trace trace_;
};

}  // namespace trainyard::engine
