// The flows in flight and their rates.
//
// What is left of a flow is an integer in (bytes x 1e12), so that rate (bytes/s) x time (ps) is
// subtracted exactly. It ends at now + max(1 ps, ceil(left / rate)), a predicted event: no
// threshold, no epsilon.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/event_queue.h"
#include "sim/engine/kernel_clock.h"
#include "sim/engine/periods/state_walk.h"
#include "sim/engine/sharing.h"

namespace trainyard::engine {

inline constexpr std::int64_t kPicosecondsPerSecond = 1'000'000'000'000;

class FlowNetwork {
 public:
  FlowNetwork(const IdVector<LinkId, std::int64_t>& capacity, const Sharing& sharing)
      : capacity_(capacity), sharing_(sharing) {}

  // The flow advances from the next reshare() on. Requires: bytes >= 1, limit >= 1; the path
  // outlives it.
  void add(std::uint32_t owner, const Path& path, Bytes bytes, std::int64_t limit, Duration now);

  // Divides the bandwidth at queue.now(); pushes (finish, `kind`, flow, version) for every flow
  // whose rate changed. A flow whose rate did not change keeps its event.
  void reshare(EventQueue& queue, std::uint8_t kind);

  // True if that is the flow's valid end; its owner is then in `owner` and the flow is gone.
  bool finish(std::uint32_t flow, std::uint32_t version, std::uint32_t& owner);

  bool changed() const { return changed_; }

  // `see`: walks the owner of a flow.
  template <class See>
  void walk(StateWalk& walk, const See& see) {
    walk.same(static_cast<std::int64_t>(states_.size()));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      State& flow = states_[i];
      see(flow.owner);
      walk.same(reinterpret_cast<std::intptr_t>(flows_[i].path.data()));
      walk.same(flows_[i].limit);
      walk.same(static_cast<std::int64_t>(flow.left));
      walk.same(static_cast<std::int64_t>(flow.left >> 64));
      walk.same(flow.rate);
      walk.time(flow.since);
    }
  }
  // Where a flow of which that is the valid end stands in the walk; else nowhere.
  std::int64_t place(std::uint32_t flow, std::uint32_t version) const {
    return version_[flow] == version ? std::int64_t{place_[flow]} : -1;
  }

 private:
  struct State {
    std::uint32_t id = 0;
    std::uint32_t owner = 0;
    Int128 left = 0;
    std::int64_t rate = 0;
    Duration since{};  // when `left` was true
  };

  const IdVector<LinkId, std::int64_t>& capacity_;
  const Sharing& sharing_;
  std::vector<Flow> flows_;  // dense, parallel to states_
  std::vector<State> states_;
  std::vector<std::uint32_t> place_;    // by id, in flows_
  std::vector<std::uint32_t> version_;  // by id
  std::vector<std::uint32_t> free_;
  std::vector<std::int64_t> rates_;
  bool changed_ = false;
};

}  // namespace trainyard::engine
