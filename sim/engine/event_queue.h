// The future event list: a radix heap on time, with one first-in-first-out list per phase for the
// present instant. Events leave in the order (at, phase, sequence), a total order that does not
// depend on addresses, hashing or the heap's insides.
//
//   Invariant: bucket b holds events whose time differs from now() in bit b - 1 and in no higher
//              one, so equal times are always in one bucket, in the order they were pushed.
//
// Source: Ahuja, Mehlhorn, Orlin, Tarjan: Faster algorithms for the shortest path problem, Journal
// of the ACM 37 (1990).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/units.h"

namespace trainyard::engine {

// What happens first among events of one instant. All that ends ends and all that can begin begins
// before bandwidth is divided, so the network is solved once per instant.
enum class Phase : std::uint8_t { finish, start, reshare };

// A plain record: it can be printed, compared and replayed.
struct Event {
  Duration at{};
  std::uint32_t subject = 0;  // what `kind` says it is
  std::uint32_t version =
      0;  // of the subject when pushed; its owner drops a stale event on arrival
  Phase phase = Phase::finish;
  std::uint8_t kind = 0;
};

class EventQueue {
 public:
  // Requires: now() <= event.at < kEndOfTime. Amortised O(bits of the time range).
  void push(const Event& event) {
    TRAINYARD_CHECK(event.at >= now_, "event at {} ps scheduled in the past of {} ps",
                    event.at.count(), now_.count());
    ++size_;
    place(event);
  }

  // Moves the clock to the event it returns. Requires: !empty().
  Event pop() {
    TRAINYARD_CHECK(size_ > 0, "pop from an empty queue");
    --size_;
    for (;;) {
      for (Present& list : present_) {
        if (list.next == list.events.size()) continue;
        const Event event = list.events[list.next++];
        if (list.next == list.events.size()) {
          list.events.clear();
          list.next = 0;
        }
        return event;
      }
      advance(next());
    }
  }

  // Whether all events of now() have been popped.
  bool instant_is_over() const {
    for (const Present& list : present_)
      if (list.next < list.events.size()) return false;
    return true;
  }
  // All events in the order in which they leave. Requires: instant_is_over().
  void pending(std::vector<Event>& events) const {
    events.clear();
    for (const std::vector<Event>& bucket : buckets_)
      events.insert(events.end(), bucket.begin(), bucket.end());
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::tie(a.at, a.phase) < std::tie(b.at, b.phase);
    });
  }
  // Makes now() and all events so much later. Requires: instant_is_over().
  void move_on(Duration by) {
    std::vector<Event> events;
    pending(events);
    for (std::vector<Event>& bucket : buckets_)
      bucket.clear();
    occupied_ = 0;
    next_ = kUnknown;
    now_ = later(now_, by);
    for (Event& event : events) {
      event.at = later(event.at, by);
      place(event);
    }
  }

  // When the next event happens. Requires: !empty().
  Duration next() {
    for (const Present& list : present_)
      if (list.next != list.events.size()) return now_;
    if (next_ == kUnknown) {
      const auto first = static_cast<std::size_t>(std::countr_zero(occupied_));
      next_ = buckets_[first].front().at;
      for (const Event& event : buckets_[first])
        if (event.at < next_) next_ = event.at;
    }
    return next_;
  }

  // Moves the clock. Requires: now() <= to, and no event happens before it.
  void advance(Duration to) {
    const auto bucket = static_cast<std::size_t>(
        std::bit_width(static_cast<std::uint64_t>(to.count() ^ now_.count())));
    now_ = to;
    if (bucket == 0 || (occupied_ >> bucket & 1) == 0) return;
    occupied_ &= ~(std::uint64_t{1} << bucket);
    next_ = kUnknown;
    for (const Event& event : buckets_[bucket])
      place(event);  // always into a lower bucket
    buckets_[bucket].clear();
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Duration now() const { return now_; }

 private:
  static constexpr Duration kUnknown = Duration::max();

  struct Present {
    std::vector<Event> events;
    std::size_t next = 0;
  };

  void place(const Event& event) {
    const auto difference =
        static_cast<std::uint64_t>(event.at.count()) ^ static_cast<std::uint64_t>(now_.count());
    if (difference == 0) {
      present_[static_cast<std::size_t>(event.phase)].events.push_back(event);
      return;
    }
    const auto bucket = static_cast<std::size_t>(std::bit_width(difference));
    buckets_[bucket].push_back(event);
    if (next_ != kUnknown && event.at < next_) next_ = event.at;
    occupied_ |= std::uint64_t{1} << bucket;
  }

  std::array<Present, 3> present_;
  std::array<std::vector<Event>, 64> buckets_;
  std::uint64_t occupied_ = 0;
  std::size_t size_ = 0;
  Duration now_{};
  Duration next_ = kUnknown;  // of the earliest event that is not present
};

}  // namespace trainyard::engine
