// The future event list: a radix heap of the instants ahead, with one first-in-first-out list per
// phase for the present instant. Events leave in the order (at, phase, sequence), a total order
// that does not depend on addresses, hashing or the heap's insides.
//
//   Invariant: bucket b holds lists of events whose time differs from now() in bit b - 1 and in no
//              higher one, so equal times are always in one bucket, in the order they were pushed.
//
// Ranks in step do the same at the same times, so events of one instant and phase that are pushed
// while few others are stay one list, which moves as one.
//
// Source: Ahuja, Mehlhorn, Orlin, Tarjan: Faster algorithms for the shortest path problem, Journal
// of the ACM 37 (1990).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/units.h"

namespace trainyard::engine {

// What happens first among events of one instant.
enum class Phase : std::uint8_t { finish, start };

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
    if (event.at == now_) return push_now(event.phase, event.kind, event.subject, event.version);
    ++size_;
    push_ahead(event.at, event.phase, {event.subject, event.version, event.kind});
  }
  // The same of an event at now().
  void push_now(Phase phase, std::uint8_t kind, std::uint32_t subject, std::uint32_t version = 0) {
    ++size_;
    present(phase).push({subject, version, kind});
  }

  // Moves the clock to the event it returns. Requires: !empty().
  Event pop() {
    TRAINYARD_CHECK(size_ > 0, "pop from an empty queue");
    while (instant_is_over())
      advance(next());
    return pop_present();
  }
  // The next event of now(). Requires: !instant_is_over().
  Event pop_present() {
    --size_;
    const Phase phase = present(Phase::finish).is_empty() ? Phase::start : Phase::finish;
    const Item& item = present(phase).pop();
    return {now_, item.subject, item.version, phase, item.kind};
  }

  // What is popped next, as long as nothing of an earlier phase is pushed.
  struct Item {
    std::uint32_t subject = 0, version = 0;
    std::uint8_t kind = 0;
  };
  std::span<const Item> upcoming() const {
    for (const Fifo& events : present_)
      if (!events.is_empty()) return events.left();
    return {};
  }
  // Whether all events of now() have been popped.
  bool instant_is_over() const {
    for (const Fifo& events : present_)
      if (!events.is_empty()) return false;
    return true;
  }
  // All events in the order in which they leave. Requires: instant_is_over().
  void pending(std::vector<Event>& events) const {
    events.clear();
    for (const Bucket& bucket : buckets_)
      for (const Ahead& ahead : bucket.all()) {
        const Fifo& list = lists_[ahead.list];
        for (const Item& item : list.is_empty() ? std::span(&ahead.first, 1) : list.left())
          events.push_back({ahead.at, item.subject, item.version, ahead.phase, item.kind});
      }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::tie(a.at, a.phase) < std::tie(b.at, b.phase);
    });
  }
  // Makes now() and all events so much later. Requires: instant_is_over().
  void move_on(Duration by) {
    std::vector<Event> events;
    pending(events);
    EventQueue moved;
    moved.now_ = later(now_, by);
    for (Event& event : events) {
      event.at = later(event.at, by);
      moved.push(event);
    }
    *this = std::move(moved);
  }

  // When the next event happens. Requires: !empty().
  Duration next() {
    if (!instant_is_over()) return now_;
    if (next_ == kUnknown) {
      const auto first = static_cast<std::size_t>(std::countr_zero(occupied_));
      for (const Ahead& ahead : buckets_[first].all())
        if (ahead.at < next_) next_ = ahead.at;
    }
    return next_;
  }

  // Moves the clock. Requires: now() <= to, and no event happens before it.
  void advance(Duration to) {
    const std::size_t bucket = bucket_of(to);
    now_ = to;
    if (bucket == 0 || (occupied_ >> bucket & 1) == 0) return;
    occupied_ &= ~(std::uint64_t{1} << bucket);
    next_ = kUnknown;
    for (const Ahead& ahead : buckets_[bucket].all()) {
      if (ahead.at == now_)
        begin(ahead);
      else
        place(ahead);  // always into a lower bucket
    }
    buckets_[bucket].clear();
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Duration now() const { return now_; }

 private:
  static constexpr Duration kUnknown = Duration::max();
  static constexpr int kRecentBits = 6;

  // First in, first out; keeps its memory.
  class Fifo {
   public:
    bool is_empty() const { return first_ == last_; }
    std::span<const Item> left() const { return std::span(items_).subspan(first_, last_ - first_); }
    void push(const Item& item) {
      if (last_ == room_) grow();
      items_[last_++] = item;
    }
    // Valid until the next push. Requires: !is_empty().
    const Item& pop() {
      const Item& item = items_[first_++];
      if (is_empty()) clear();
      return item;
    }
    // All of the other, which is empty then.
    void take(Fifo& other) {
      if (is_empty()) {
        std::swap(*this, other);
      } else {
        for (const Item& item : other.left())
          push(item);
        other.clear();
      }
    }
    void clear() { first_ = last_ = 0; }

   private:
    void grow() {
      room_ = std::max<std::size_t>(4, 2 * room_);
      items_.resize(room_);
    }

    std::vector<Item> items_;
    std::size_t first_ = 0, last_ = 0, room_ = 0;
  };
  // Events of an instant to come. Others of the same may be before and behind it.
  struct Ahead {
    Duration at{};
    Item first;
    Phase phase = Phase::finish;
    std::uint32_t list = 0;  // into lists_: all of them, if there is more than the first
  };
  // Keeps its memory.
  class Bucket {
   public:
    std::span<const Ahead> all() const { return std::span(room_).first(count_); }
    void push_back(const Ahead& ahead) {
      if (count_ == room_.size()) [[unlikely]]
        grow();
      room_[count_++] = ahead;
    }
    void clear() { count_ = 0; }

   private:
    [[gnu::noinline]] void grow() { room_.resize(std::max<std::size_t>(8, 2 * count_)); }

    std::vector<Ahead> room_;
    std::size_t count_ = 0;
  };
  // The newest list of an instant.
  struct Recent {
    Duration at = kUnknown;
    Item first;
    Phase phase = Phase::finish;
    std::uint32_t list = 0;
  };

  Fifo& present(Phase phase) { return present_[static_cast<std::size_t>(phase)]; }

  void push_ahead(Duration at, Phase phase, const Item& item) {
    const auto key = static_cast<std::uint64_t>(at.count()) * 2 + static_cast<std::uint64_t>(phase);
    Recent& recent = recent_[key * 0x9E3779B97F4A7C15 >> (64 - kRecentBits)];
    if (recent.at == at && recent.phase == phase) {
      Fifo& list = lists_[recent.list];
      if (list.is_empty()) list.push(recent.first);
      return list.push(item);
    }
    recent = {at, item, phase, new_list()};
    place({at, item, phase, recent.list});
    if (next_ != kUnknown && at < next_) next_ = at;
  }

  std::uint32_t new_list() {
    if (free_lists_.empty()) {
      lists_.emplace_back();
      return static_cast<std::uint32_t>(lists_.size() - 1);
    }
    const std::uint32_t list = free_lists_.back();
    free_lists_.pop_back();
    return list;
  }

  std::size_t bucket_of(Duration at) const {
    return static_cast<std::size_t>(
        std::bit_width(static_cast<std::uint64_t>(at.count() ^ now_.count())));
  }

  // Requires: it is ahead.
  void place(const Ahead& ahead) {
    const std::size_t bucket = bucket_of(ahead.at);
    buckets_[bucket].push_back(ahead);
    occupied_ |= std::uint64_t{1} << bucket;
  }

  // Its instant is the present one.
  void begin(const Ahead& ahead) {
    Fifo& list = lists_[ahead.list];
    if (list.is_empty())
      present(ahead.phase).push(ahead.first);
    else
      present(ahead.phase).take(list);
    free_lists_.push_back(ahead.list);
  }

  std::array<Fifo, 2> present_;
  std::array<Bucket, 64> buckets_;
  std::uint64_t occupied_ = 0;
  std::size_t size_ = 0;
  Duration now_{};
  Duration next_ = kUnknown;  // of the earliest event that is not present
  std::vector<Fifo> lists_;
  std::vector<std::uint32_t> free_lists_;
  std::array<Recent, std::size_t{1} << kRecentBits> recent_;  // by a hash of instant and phase
};

}  // namespace trainyard::engine
