#include "sim/engine/flow_network.h"

#include <algorithm>

namespace trainyard::engine {

void FlowNetwork::add(std::uint32_t owner, const Path& path, Bytes bytes, std::int64_t limit,
                      Duration now) {
  TRAINYARD_CHECK(limit >= 1, "a flow of {} bytes with rate {}", bytes.count(), limit);
  std::uint32_t id;
  if (free_.empty()) {
    id = static_cast<std::uint32_t>(place_.size());
    place_.push_back(0);
    version_.push_back(0);
  } else {
    id = free_.back();
    free_.pop_back();
  }
  place_[id] = static_cast<std::uint32_t>(flows_.size());
  flows_.push_back({path, limit});
  states_.push_back({.id = id,
                     .owner = owner,
                     .left = Int128{bytes.count()} * kPicosecondsPerSecond,
                     .since = now});
  changed_ = true;
}

void FlowNetwork::reshare(EventQueue& queue, std::uint8_t kind) {
  changed_ = false;
  if (flows_.empty()) return;
  sharing_.rates(capacity_, flows_, rates_);
  const Duration now = queue.now();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& flow = states_[i];
    if (flow.rate == rates_[i]) continue;
    TRAINYARD_CHECK(rates_[i] >= 1, "a flow got the rate {}", rates_[i]);
    flow.left -= Int128{flow.rate} * (now - flow.since).count();
    TRAINYARD_CHECK(flow.left > 0, "flow {} is past its end", flow.id);
    flow.since = now;
    flow.rate = rates_[i];
    const Duration end =
        later(now, Duration(std::max<std::int64_t>(1, divide_up(flow.left, flow.rate))));
    queue.push({end, flow.id, ++version_[flow.id], Phase::finish, kind});
  }
}

bool FlowNetwork::finish(std::uint32_t flow, std::uint32_t version, std::uint32_t& owner) {
  if (version_[flow] != version) return false;
  ++version_[flow];
  const std::uint32_t place = place_[flow];
  owner = states_[place].owner;
  flows_[place] = flows_.back();
  states_[place] = states_.back();
  place_[states_[place].id] = place;
  flows_.pop_back();
  states_.pop_back();
  free_.push_back(flow);
  changed_ = true;
  return true;
}

}  // namespace trainyard::engine
