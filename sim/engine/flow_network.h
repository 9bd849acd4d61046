// The flows in flight and when they end.
//
// What is left of a flow is an integer in (bytes x 1e12), so that rate (bytes/s) x time (ps) is
// subtracted exactly. It ends at now + max(1 ps, ceil(left / rate)): no threshold, no epsilon.
//
// Flows of one rate share a clock, which counts what each of them has sent: a flow ends when it
// reads what it read when the flow joined, and what was left then. A change of rate is that of the
// clock, and of each group only the flow that ends first has a time at which it does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/engine/compute/kernel_clock.h"
#include "sim/engine/flows/movable_heap.h"
#include "sim/engine/flows/rate_groups.h"
#include "sim/engine/periods/state_walk.h"

namespace trainyard::engine {

class FlowNetwork {
 public:
  static constexpr Duration kNever = Duration::max();

  explicit FlowNetwork(std::unique_ptr<RateGroups> groups) : groups_(std::move(groups)) {}

  // The flow advances from the next reshare() on. Requires: bytes >= 1, limit >= 1; the path
  // outlives it.
  void add(std::uint32_t owner, const Path& path, Bytes bytes, std::int64_t limit);

  // Divides the bandwidth at `now`. Requires: now <= next_end().
  void reshare(Duration now);

  // When the next flows end; kNever: none does. Changes in finish(), reshare() and walk() alone:
  // the engine asks once an instant.
  Duration next_end() const { return ends_.empty() ? kNever : ends_.top().key; }
  // The owners of the flows that end then, in the order in which they joined; the flows are gone.
  // Requires: next_end() is not kNever.
  const std::vector<std::uint32_t>& finish();

  bool changed() const { return changed_; }

  // `see`: walks the owner of a flow. Requires: bandwidth was divided since flows came and went.
  template <class See>
  void walk(StateWalk& walk, const See& see) {
    if (!walk.reads()) return move_on(walk.shift());
    const std::vector<std::uint32_t> flows = by_joining();
    walk.same(static_cast<std::int64_t>(flows.size()));
    for (const std::uint32_t flow : flows) {
      const State& state = flows_[flow];
      const Int128 left = left_of(flow, walk.now());
      see(state.owner);
      walk.same(reinterpret_cast<std::intptr_t>(state.path));
      walk.same(state.limit);
      walk.same(static_cast<std::int64_t>(left));
      walk.same(static_cast<std::int64_t>(left >> 64));
    }
  }

 private:
  struct State {
    std::uint32_t owner = 0;
    std::uint32_t group = kNoGroup;
    std::uint64_t joined = 0;
    const Path* path = nullptr;  // null: there is no such flow
    std::int64_t limit = 0;
    Int128 left = 0;  // while it is in no group
  };
  struct Group {
    MovableHeap<Int128> flows;  // by what the clock reads at their end
    Int128 clock = 0;
    Duration since{};  // when `clock` was true
    std::int64_t rate = 0;
    bool ends = false;  // it is in ends_
  };
  struct Ended {
    std::uint64_t joined;
    std::uint32_t flow;
  };
  static constexpr std::uint32_t kNoGroup = 0xFFFFFFFF;

  static Int128 clock(const Group& group, Duration now);
  void move(std::uint32_t flow, std::uint32_t to, Duration now);
  // Takes over the group's rate at `now`, and when the first of its flows ends.
  void update(std::uint32_t group, Duration now);
  void note_end(std::uint32_t group);
  std::vector<std::uint32_t> by_joining() const;
  Int128 left_of(std::uint32_t flow, Duration now) const;
  void move_on(Duration by);

  std::unique_ptr<RateGroups> groups_;
  std::vector<State> flows_;
  std::vector<std::uint32_t> place_;  // by flow, in its group
  std::vector<std::uint32_t> free_;
  std::vector<Group> clocks_;  // by group
  MovableHeap<Duration> ends_;
  std::vector<std::uint32_t> place_of_group_;  // in ends_
  std::vector<std::uint32_t> left_groups_;     // that flows moved out of
  std::vector<Ended> ended_;
  std::vector<std::uint32_t> owners_;
  std::uint64_t joined_ = 0;
  bool changed_ = false;
};

}  // namespace trainyard::engine
