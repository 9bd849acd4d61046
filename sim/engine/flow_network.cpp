#include "sim/engine/flow_network.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/divide.h"

namespace trainyard::engine {

void FlowNetwork::add(std::uint32_t owner, const Path& path, Bytes bytes, std::int64_t limit) {
  TRAINYARD_CHECK(limit >= 1, "a flow of {} bytes with rate {}", bytes.count(), limit);
  std::uint32_t id;
  if (free_.empty()) {
    id = static_cast<std::uint32_t>(flows_.size());
    flows_.emplace_back();
    place_.push_back(0);
  } else {
    id = free_.back();
    free_.pop_back();
  }
  flows_[id] = {.owner = owner,
                .joined = joined_++,
                .path = &path,
                .limit = limit,
                .left = Int128{bytes.count()} * kPicosecondsPerSecond};
  groups_->add(id, path, limit);
  changed_ = true;
}

void FlowNetwork::reshare(Duration now) {
  changed_ = false;
  groups_->divide();
  if (clocks_.size() < groups_->groups()) {
    clocks_.resize(groups_->groups());
    place_of_group_.resize(groups_->groups());
  }
  // Clocks still run at the old rates, so each reads at `now` what its flows have sent.
  left_groups_.clear();
  for (const RateGroups::Move& move : groups_->moved())
    this->move(move.flow, move.to, now);
  for (const RateGroups::Move& move : groups_->moved())
    update(move.to, now);
  for (const std::uint32_t group : left_groups_)
    update(group, now);
  for (const std::uint32_t group : groups_->changed())
    update(group, now);
}

Int128 FlowNetwork::clock(const Group& group, Duration now) {
  return group.clock + Int128{group.rate} * (now - group.since).count();
}

void FlowNetwork::move(std::uint32_t flow, std::uint32_t to, Duration now) {
  State& state = flows_[flow];
  if (state.group != kNoGroup) {
    Group& from = clocks_[state.group];
    state.left = left_of(flow, now);
    TRAINYARD_CHECK(state.left > 0, "flow {} is past its end", flow);
    from.flows.erase(flow, place_);
    left_groups_.push_back(state.group);
  }
  Group& group = clocks_[to];
  if (group.flows.empty()) {
    group.clock = 0;
    group.rate = 0;
    group.since = now;
  }
  group.flows.insert(clock(group, now) + state.left, flow, place_);
  state.group = to;
}

void FlowNetwork::update(std::uint32_t number, Duration now) {
  Group& group = clocks_[number];
  if (!group.flows.empty()) {
    const std::int64_t rate = groups_->rate(number);
    if (rate != group.rate) {
      TRAINYARD_CHECK(rate >= 1, "a flow got the rate {}", rate);
      group.clock = clock(group, now);
      group.since = now;
      group.rate = rate;
    }
  }
  note_end(number);
}

void FlowNetwork::note_end(std::uint32_t number) {
  Group& group = clocks_[number];
  if (group.flows.empty()) {
    if (group.ends) ends_.erase(number, place_of_group_);
    group.ends = false;
    return;
  }
  const Int128 left = group.flows.top().key - group.clock;
  const Duration end = later(group.since, Duration(divide_up(left, group.rate)));
  if (group.ends)
    ends_.change(number, end, place_of_group_);
  else
    ends_.insert(end, number, place_of_group_);
  group.ends = true;
}

const std::vector<std::uint32_t>& FlowNetwork::finish() {
  const Duration now = next_end();
  ended_.clear();
  while (next_end() == now) {
    const std::uint32_t number = ends_.top().id;
    Group& group = clocks_[number];
    const Int128 sent = clock(group, now);
    while (!group.flows.empty() && group.flows.top().key <= sent) {
      const std::uint32_t flow = group.flows.top().id;
      group.flows.erase(flow, place_);
      ended_.push_back({flows_[flow].joined, flow});
    }
    note_end(number);
  }
  std::sort(ended_.begin(), ended_.end(),
            [](const Ended& a, const Ended& b) { return a.joined < b.joined; });
  owners_.clear();
  for (const Ended& ended : ended_) {
    owners_.push_back(flows_[ended.flow].owner);
    groups_->remove(ended.flow);
    flows_[ended.flow].path = nullptr;
    free_.push_back(ended.flow);
  }
  changed_ = true;
  return owners_;
}

Int128 FlowNetwork::left_of(std::uint32_t flow, Duration now) const {
  const Group& group = clocks_[flows_[flow].group];
  return group.flows.key(flow, place_) - clock(group, now);
}

std::vector<std::uint32_t> FlowNetwork::by_joining() const {
  std::vector<std::uint32_t> flows;
  for (std::uint32_t flow = 0; flow < flows_.size(); ++flow)
    if (flows_[flow].path != nullptr) flows.push_back(flow);
  std::sort(flows.begin(), flows.end(), [this](std::uint32_t a, std::uint32_t b) {
    return flows_[a].joined < flows_[b].joined;
  });
  return flows;
}

void FlowNetwork::move_on(Duration by) {
  for (Group& group : clocks_)
    if (group.ends) group.since += by;
  ends_.shift(by);
}

}  // namespace trainyard::engine
