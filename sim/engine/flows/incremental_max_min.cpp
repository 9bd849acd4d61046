#include "sim/engine/flows/incremental_max_min.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/divide.h"

namespace trainyard::engine {
namespace {

constexpr std::uint32_t kNoLink = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kNoLevel = std::numeric_limits<std::int64_t>::max();

}  // namespace

IncrementalMaxMin::IncrementalMaxMin(const IdVector<LinkId, std::int64_t>& capacity)
    : capacity_(capacity), number_(capacity.size(), kNoLink) {}

std::uint32_t IncrementalMaxMin::new_link(std::int64_t capacity, std::int64_t level) {
  links_.emplace_back().capacity = capacity;
  level_.push_back(level);
  return static_cast<std::uint32_t>(links_.size() - 1);
}

std::uint32_t IncrementalMaxMin::number_of(LinkId link) {
  TRAINYARD_CHECK(index(link) < capacity_.size(), "flow over link {} of {}", index(link),
                  capacity_.size());
  if (number_[link] == kNoLink) {
    TRAINYARD_CHECK(capacity_[link] >= 1, "link {} has capacity {}", index(link), capacity_[link]);
    number_[link] = new_link(capacity_[link], kNoLevel);
  }
  return number_[link];
}

std::uint32_t IncrementalMaxMin::number_of_limit(std::int64_t limit) {
  const auto [at, added] = limits_.try_emplace(limit, 0);
  if (added) at->second = new_link(limit, limit);
  return at->second;
}

void IncrementalMaxMin::add(std::uint32_t flow, const Path& path, std::int64_t limit) {
  if (flow >= flows_.size()) {
    flows_.resize(flow + 1);
    rate_.resize(flow + 1);
  }
  State& state = flows_[flow];
  state.group = kNoGroup;
  state.steps.clear();
  state.steps.emplace_back();
  for (const PathLink& crossed : path) {
    TRAINYARD_CHECK(crossed.count >= 1, "flow crosses a link {} times", crossed.count);
    const std::uint32_t number = number_of(crossed.link);
    const auto known = std::find_if(state.steps.begin() + 1, state.steps.end(),
                                    [number](const Step& step) { return step.link == number; });
    if (known == state.steps.end())
      state.steps.push_back({number, crossed.count, 0});
    else
      known->count += crossed.count;
  }
  TRAINYARD_CHECK(limit >= 1, "flow with limit {}", limit);
  state.most = limit;
  for (std::size_t s = 1; s < state.steps.size(); ++s)
    state.most = std::min(state.most, links_[state.steps[s].link].capacity / state.steps[s].count);
  state.most = std::max<std::int64_t>(state.most, 1);
  state.steps[0] = {number_of_limit(state.most), 1, 0};
  for (std::uint32_t s = 1; s < state.steps.size(); ++s) {
    Step& step = state.steps[s];
    Link& link = links_[step.link];
    step.place = static_cast<std::uint32_t>(link.crossings.size());
    link.crossings.push_back({flow, s, step.count});
    count(step.link, state.most, step.count, 1);
  }
  rate_[flow] = 0;
  set_rate(flow, least_level(state, kNoLink), kNoLink);
  touch(flow);
}

void IncrementalMaxMin::remove(std::uint32_t flow) {
  State& state = flows_[flow];
  set_rate(flow, 0, kNoLink);
  for (std::uint32_t s = 1; s < state.steps.size(); ++s) {
    const Step& step = state.steps[s];
    std::vector<Crossing>& crossings = links_[step.link].crossings;
    const Crossing last = crossings.back();
    crossings[step.place] = last;
    flows_[last.flow].steps[last.step].place = step.place;
    crossings.pop_back();
    count(step.link, state.most, step.count, -1);
  }
  state.group = kNoGroup;
}

void IncrementalMaxMin::count(std::uint32_t number, std::int64_t most, std::int64_t users,
                              int sign) {
  Link& link = links_[number];
  link.users += sign * users;
  link.most += sign * most * users;
  link.fastest = link.users == 0 ? 0 : std::max(link.fastest, most);
  const bool can_fill = Int128{link.most} + link.users > link.capacity &&
                        Int128{link.fastest} * link.users > link.capacity;
  if (can_fill && !link.can_fill) {
    link.load = 0;
    for (const Crossing& crossing : link.crossings)
      link.load += rate_[crossing.flow] * crossing.count;
  }
  const bool changed = can_fill != link.can_fill;
  link.can_fill = can_fill;
  if (can_fill || changed) make_due(number);
}

void IncrementalMaxMin::make_due(std::uint32_t number) {
  Link& link = links_[number];
  if (link.due) return;
  // Without a level every flow has what it would get without the link.
  if (level_[number] == kNoLevel && (!link.can_fill || link.load + link.users <= link.capacity))
    return;
  link.due = true;
  due_.push_back({level_[number], number});
  std::push_heap(due_.begin(), due_.end());
}

// The least level first, as what holds flows back there changes what others have left.
void IncrementalMaxMin::divide() {
  moved_.clear();
  changed_.clear();
  while (!due_.empty()) {
    const std::uint32_t number = due_.front().link;
    std::pop_heap(due_.begin(), due_.end());
    due_.pop_back();
    links_[number].due = false;
    const std::int64_t level = compute(number);
    if (level != level_[number]) set_level(number, level);
  }
  regroup();
}

std::int64_t IncrementalMaxMin::compute(std::uint32_t number) {
  const Link& link = links_[number];
  if (!link.can_fill) return kNoLevel;
  ++computed_;
  const std::int64_t now = level_[number];
  demands_.clear();
  for (const Crossing& crossing : link.crossings) {
    const std::int64_t rate = rate_[crossing.flow];
    demands_.push_back(
        {rate < now ? rate : least_level(flows_[crossing.flow], number), crossing.count});
  }
  std::int64_t left = link.capacity, users = link.users;
  while (users > 0) {
    const std::int64_t share = std::max<std::int64_t>(1, left / users);
    std::size_t kept = 0;
    for (const Demand& demand : demands_) {
      if (demand.rate < share) {
        left -= demand.rate * demand.count;
        users -= demand.count;
      } else {
        demands_[kept++] = demand;
      }
    }
    if (kept == demands_.size()) return share;
    demands_.resize(kept);
  }
  return kNoLevel;
}

void IncrementalMaxMin::set_level(std::uint32_t number, std::int64_t level) {
  const std::int64_t before = level_[number];
  level_[number] = level;
  changed_.push_back(number);
  for (const Crossing& crossing : links_[number].crossings) {
    const std::int64_t rate = rate_[crossing.flow];
    if (rate != before && rate <= level) continue;
    touch(crossing.flow);
    const std::int64_t other = least_level(flows_[crossing.flow], number);
    set_rate(crossing.flow, std::min(level, other), number);
  }
}

void IncrementalMaxMin::set_rate(std::uint32_t flow, std::int64_t rate, std::uint32_t because_of) {
  const std::int64_t more = rate - rate_[flow];
  if (more == 0) return;
  rate_[flow] = rate;
  const std::vector<Step>& steps = flows_[flow].steps;
  for (std::size_t s = 1; s < steps.size(); ++s) {
    Link& link = links_[steps[s].link];
    if (!link.can_fill && level_[steps[s].link] == kNoLevel) continue;
    link.load += more * steps[s].count;
    if (steps[s].link != because_of) make_due(steps[s].link);
  }
}

void IncrementalMaxMin::touch(std::uint32_t flow) {
  if (flows_[flow].touched) return;
  flows_[flow].touched = true;
  touched_.push_back(flow);
}

// A flow stays with what holds it back as long as that does.
void IncrementalMaxMin::regroup() {
  for (const std::uint32_t flow : touched_) {
    State& state = flows_[flow];
    state.touched = false;
    const std::int64_t rate = rate_[flow];
    if (rate == 0) continue;  // it is gone
    if (state.group != kNoGroup && level_[state.group] == rate) continue;
    const auto holds = std::find_if(state.steps.begin(), state.steps.end(),
                                    [&](const Step& step) { return level_[step.link] == rate; });
    moved_.push_back({flow, holds->link});
    state.group = holds->link;
  }
  touched_.clear();
}

std::int64_t IncrementalMaxMin::least_level(const State& flow, std::uint32_t without) const {
  std::int64_t least = kNoLevel;
  for (const Step& step : flow.steps)
    if (step.link != without) least = std::min(least, level_[step.link]);
  return least;
}

}  // namespace trainyard::engine
