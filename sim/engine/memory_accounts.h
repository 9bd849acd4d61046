// The memory of all actors over time: what each holds, when it held most, and whose that was.
//
// What counts at an instant is what is held after all of that instant's changes, so that the order
// in which simultaneous ops end and begin cannot show.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/recorder.h"
#include "sim/engine/run_state.h"
#include "sim/engine/trace.h"

namespace trainyard::engine {

// What some ops of an actor take and give back one after another, from wherever it starts. What is
// held behind its last change counts when the next one comes, or none does.
class MemoryCourse {
 public:
  // Of a program.
  explicit MemoryCourse(const Program* program = nullptr) : program_(program) {}
  // What an op takes or gives back, so long after the begin. Requires: not earlier than before.
  void change(const CompiledOp& op, bool gives, Duration at);
  // When it is highest first.
  Duration most_at() const { return most_at_; }
  // How many ops of a stream have ended then, and whether another one runs. Requires: for each
  // stream that has some.
  void stream_at_most(std::uint32_t stream, std::uint32_t ended, bool runs);

 private:
  friend class MemoryAccounts;
  using Levels = std::array<std::int64_t, kMaxCategories>;

  void settle();

  const Program* program_;
  std::int64_t level_ = 0;  // since the begin
  Levels by_category_{};
  bool settled_ = false;  // there is a most, after all changes of an instant
  std::int64_t most_ = 0, most_outside_ = 0;
  Levels most_of_{};
  Duration most_at_{};
  Levels at_most_{};
  struct Lane {
    std::uint32_t stream = 0, ended = 0;
    bool runs = false;
  };
  std::vector<Lane> lanes_;
  bool changes_ = false;
  Duration changed_{};  // last
};

class MemoryAccounts {
 public:
  MemoryAccounts(const RunState& state, const Recorder& recorder);

  // The head of the stream begins: takes. Requires: its state is not running yet.
  void begin(const StreamState& stream, Duration now, Recorder& recorder);
  // The head of the stream ends: gives back. Requires: it is still the head.
  void end(const StreamState& stream, Duration now, Recorder& recorder);
  // All changes of a course that begins then. Requires: the streams of the actor stand there.
  void pass(std::uint32_t actor, const MemoryCourse& course, Duration begin);
  // No more changes will come at or before `now`.
  void settle(Duration now);

  void walk(StateWalk& walk);

  MemoryPeak peak(ActorId actor) const;
  // The actor whose peak exceeds its capacity by most, the lowest among equals.
  std::optional<ActorId> furthest_over() const;

 private:
  struct Account {
    Duration changed{};
    std::int64_t level = 0;
    std::array<std::int64_t, kMaxCategories> by_category{};
    MemoryPeak peak;
    // With Program::pools: the most outside of them, and of each.
    std::int64_t outside = 0;
    std::array<std::int64_t, kMaxCategories> most{};
  };

  void change(const StreamState& stream, int sign, Duration now, Recorder& recorder);
  void settle(std::uint32_t actor, Duration now);
  void settle_pools(Account& account, std::uint32_t pools);
  bool keeps_streams(std::uint32_t actor, const Account& account) const;
  void keep_streams(std::uint32_t actor, Account& account) const;
  void reach_most(std::uint32_t actor, const MemoryCourse& course, Duration begin);
  void walk(StateWalk& walk, std::uint32_t actor);

  const RunState& state_;
  const Recorder& recorder_;
  std::vector<Account> accounts_;  // by actor
};

}  // namespace trainyard::engine
