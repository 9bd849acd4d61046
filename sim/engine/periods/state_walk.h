// A walk over all that decides how a run goes on, member by member. It reads the state into an
// image, or moves the state on by whole periods; both in one function per owner of state, so that
// what is compared and what is moved cannot differ.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/divide.h"
#include "sim/base/units.h"

namespace trainyard::engine {

// A hash of one more value.
constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 32;
}

// A state as a walk read it.
struct StateImage {
  // What may grow; what was the most of it is to grow as fast, and to stay at or below a limit.
  struct Level {
    std::int64_t now = 0, most = 0, limit = 0;
  };
  struct Stream {
    std::uint32_t call = 0, at = 0, ended = 0;
    std::uint8_t state = 0;
  };
  struct CallOfActor {
    std::uint32_t actor = 0, call = 0;
  };
  // Calls of one actor at which an observer begins to count otherwise.
  struct Marks {
    std::uint32_t actor = 0;
    const std::vector<std::size_t>* calls = nullptr;
  };

  Duration now{};
  std::vector<std::int64_t> same;
  std::vector<Duration> moments;
  std::vector<std::int64_t> sums;
  std::vector<Level> levels;
  std::vector<Stream> streams;
  std::vector<CallOfActor> calls;
  std::vector<Duration> oldest;  // by actor
  Duration counts_from{};
  std::vector<Marks> marks;

  std::uint64_t hash = 0;  // of what is equal in states that repeat

  void clear(Duration at, std::size_t actors);
  void find_hash();
};

// Of a state and an earlier one that is the same, but for a shift of time and of calls.
struct Period {
  const StateImage* before = nullptr;
  const StateImage* after = nullptr;
  std::int64_t times = 0;  // that it comes again

  Duration shift() const {
    return Duration(checked_product(times, (after->now - before->now).count()));
  }
};

class StateWalk {
 public:
  // Reads.
  explicit StateWalk(StateImage& image) : image_(&image) {}
  // Moves on the state that `period.after` was read of.
  explicit StateWalk(const Period& period) : period_(&period), shift_(period.shift()) {}

  bool reads() const { return image_ != nullptr; }
  Duration shift() const { return shift_; }

  // What is equal in states that repeat.
  void same(std::int64_t value) {
    if (reads()) image_->same.push_back(value);
  }
  // An instant that moves with time.
  void time(Duration& at) {
    same((at - now()).count());
    at += shift_;
  }
  // The same where nothing depends on when it was.
  void carry(Duration& at) { at += shift_; }
  // An instant that moves with time, or is that of something that stands still.
  void moment(Duration& at) {
    if (reads())
      image_->moments.push_back(at);
    else
      at = later(at, growth(period_->before->moments, period_->after->moments, moments_));
  }
  // What grows by as much in every period.
  void sum(std::int64_t& value) {
    if (reads())
      image_->sums.push_back(value);
    else
      value = checked_sum(value, growth(period_->before->sums, period_->after->sums, sums_));
  }
  void sum(Duration& value) {
    std::int64_t count = value.count();
    sum(count);
    value = Duration(count);
  }
  template <class Unsigned>
  void sum(Unsigned& value) {
    auto count = static_cast<std::int64_t>(value);
    sum(count);
    value = static_cast<Unsigned>(count);
  }
  // What was the most of a level so far, which limits it. When moved: how much more it is.
  std::int64_t most(std::int64_t level, std::int64_t most, std::int64_t limit);
  // The head of a stream, all streams of all actors in order. `state`: of the head.
  void stream(std::uint32_t& call, std::uint32_t at, std::uint32_t& ended, std::uint8_t state);
  // A call of the actor's program, that moves with it or stands still.
  void call(std::uint32_t actor, std::uint32_t& call) {
    if (reads()) {
      image_->calls.push_back({actor, call});
      return;
    }
    const std::size_t i = calls_++;
    call += static_cast<std::uint32_t>(period_->times) *
            (period_->after->calls[i].call - period_->before->calls[i].call);
  }
  // How many more ops of a stream have ended.
  std::uint32_t more_ended(std::uint32_t stream) const;
  // The observer counts nothing before.
  void counts_from(Duration at) {
    if (reads()) image_->counts_from = at;
  }
  // The observer will not ask of the actor what was earlier than this.
  void oldest(std::uint32_t actor, Duration at) {
    if (reads()) image_->oldest[actor] = std::min(image_->oldest[actor], at);
  }
  // No period reaches over one of these calls of the actor, which are in order and outlive the run.
  void marks(std::uint32_t actor, const std::vector<std::size_t>& calls) {
    if (reads()) image_->marks.push_back({actor, &calls});
  }

  // Of the period that the state is moved on by. Requires: !reads().
  std::int64_t times() const { return period_->times; }

  Duration now() const { return reads() ? image_->now : period_->after->now; }

 private:
  std::int64_t growth(const std::vector<std::int64_t>& before,
                      const std::vector<std::int64_t>& after, std::size_t& next) const {
    const std::size_t i = next++;
    return checked_product(period_->times, after[i] - before[i]);
  }
  Duration growth(const std::vector<Duration>& before, const std::vector<Duration>& after,
                  std::size_t& next) const {
    const std::size_t i = next++;
    return Duration(checked_product(period_->times, (after[i] - before[i]).count()));
  }

  StateImage* image_ = nullptr;
  const Period* period_ = nullptr;
  Duration shift_{};
  std::size_t moments_ = 0, sums_ = 0, levels_ = 0, calls_ = 0, streams_ = 0;  // moved so far
};

}  // namespace trainyard::engine
