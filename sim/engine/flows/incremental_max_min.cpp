#include "sim/engine/flows/incremental_max_min.h"

#include <algorithm>
#include <utility>

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
  take_steps(state, path);
  TRAINYARD_CHECK(limit >= 1, "flow with limit {}", limit);
  state.most = limit;
  for (const Step& step : steps(state).subspan(1))
    state.most = std::min(state.most, links_[step.link].capacity / step.count);
  state.most = std::max<std::int64_t>(state.most, 1);
  steps(state)[0] = {number_of_limit(state.most), 1, 0};
  for (std::uint32_t s = 1; s < state.steps; ++s) {
    Step& step = steps(state)[s];
    Link& link = links_[step.link];
    step.place = static_cast<std::uint32_t>(link.crossings.size());
    link.crossings.push_back({flow, s, step.count});
    count(step.link, state.most, step.count, 1);
  }
  rate_[flow] = 0;
  set_rate(flow, least_level(state, kNoLink), kNoLink);
  touch(flow);
}

// Steps of flows that are gone serve others with as many.
void IncrementalMaxMin::take_steps(State& state, const Path& path) {
  merged_.assign(1, {});
  for (const PathLink& crossed : path) {
    TRAINYARD_CHECK(crossed.count >= 1, "flow crosses a link {} times", crossed.count);
    const std::uint32_t number = number_of(crossed.link);
    const auto known = std::find_if(merged_.begin() + 1, merged_.end(),
                                    [number](const Step& step) { return step.link == number; });
    if (known == merged_.end())
      merged_.push_back({number, crossed.count, 0});
    else
      known->count += crossed.count;
  }
  state.steps = static_cast<std::uint32_t>(merged_.size());
  if (free_steps_.size() <= merged_.size()) free_steps_.resize(merged_.size() + 1);
  std::vector<std::uint32_t>& free = free_steps_[merged_.size()];
  if (free.empty()) {
    state.first = static_cast<std::uint32_t>(steps_.size());
    steps_.insert(steps_.end(), merged_.begin(), merged_.end());
  } else {
    state.first = free.back();
    free.pop_back();
    std::copy(merged_.begin(), merged_.end(), steps_.begin() + state.first);
  }
}

void IncrementalMaxMin::remove(std::uint32_t flow) {
  State& state = flows_[flow];
  set_rate(flow, 0, kNoLink);
  for (const Step& step : steps(state).subspan(1)) {
    std::vector<Crossing>& crossings = links_[step.link].crossings;
    const Crossing last = crossings.back();
    crossings[step.place] = last;
    steps(flows_[last.flow])[last.step].place = step.place;
    crossings.pop_back();
    count(step.link, state.most, step.count, -1);
  }
  free_steps_[state.steps].push_back(state.first);
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
  const std::int64_t share = link.capacity / std::max<std::int64_t>(1, link.users);
  due_.push_back({level_[number] == kNoLevel ? share : level_[number], number});
  std::push_heap(due_.begin(), due_.end());
}

// The least level first, as what holds flows back there changes what others have left. A link that
// turns out to be fuller later than another is due waits for that.
void IncrementalMaxMin::divide() {
  moved_.clear();
  changed_.clear();
  while (!due_.empty()) {
    std::pop_heap(due_.begin(), due_.end());
    const Due least = due_.back();
    due_.pop_back();
    const std::int64_t level = compute(least.link);
    const bool waits = level_[least.link] == kNoLevel && level > least.level && !due_.empty() &&
                       due_.front().level < level;
    if (waits && level != kNoLevel) {
      due_.push_back({level, least.link});
      std::push_heap(due_.begin(), due_.end());
      continue;
    }
    links_[least.link].due = false;
    if (level != level_[least.link]) set_level(least.link, level);
  }
  regroup();
}

// Mostly those flows share what a link has left that did before: where all others stay below their
// share and they themselves could take it, it is a level. Floors allow a lesser one only where d of
// a flow below is less than `users` from it: of levels s < t, with k of n users between, n (s + 1)
// > k s + (n - k) t, so t - s < n / (n - k), or s = 1, of which the same holds.
std::int64_t IncrementalMaxMin::share_of_same(std::uint32_t number) {
  const Link& link = links_[number];
  const std::int64_t now = level_[number];
  demands_.resize(link.crossings.size());
  std::size_t held = 0;
  std::int64_t users = 0, fullest_below = 0;
  for (const Crossing& crossing : link.crossings) {
    const std::int64_t rate = rate_[crossing.flow];
    const bool is_held = rate == now;
    demands_[held] = {now, crossing.count, crossing.flow};
    held += is_held ? 1 : 0;
    users += is_held ? crossing.count : 0;
    fullest_below = std::max(fullest_below, is_held ? 0 : rate);
  }
  demands_.resize(held);
  if (users == 0) return kNoLevel;
  const std::int64_t share = (link.capacity - (link.load - now * users)) / users;
  if (share <= fullest_below + link.users) return kNoLevel;
  if (share <= now) return share;
  for (Demand& demand : demands_) {
    demand.rate = least_level(flows_[demand.flow], number);
    if (demand.rate < share) return kNoLevel;
  }
  return share;
}

// Flows that the link holds back would get its present level without it, or more; how much more
// matters only where the new level is higher.
std::int64_t IncrementalMaxMin::compute(std::uint32_t number) {
  const Link& link = links_[number];
  same_are_held_ = false;
  if (!link.can_fill) return kNoLevel;
  ++computed_;
  const std::int64_t now = level_[number];
  if (now != kNoLevel) {
    const std::int64_t share = share_of_same(number);
    same_are_held_ = share != kNoLevel;
    if (same_are_held_) {
      ++shared_again_;
      return share;
    }
  }
  std::int64_t left = link.capacity, users = link.users;
  std::int64_t share = std::max<std::int64_t>(1, left / users);
  std::size_t kept = link.crossings.size();
  const auto leave_out = [&](const Demand& demand) {
    const bool below = demand.rate < share;
    left -= below ? demand.rate * demand.count : 0;
    users -= below ? demand.count : 0;
    return below;
  };
  demands_.resize(kept);
  kept = 0;
  for (const Crossing& crossing : link.crossings) {
    demands_[kept] = {rate_[crossing.flow], crossing.count, crossing.flow};
    if (share > now && demands_[kept].rate == now)
      demands_[kept].rate = least_level(flows_[crossing.flow], number);
    if (!leave_out(demands_[kept])) ++kept;
  }
  bool known = share > now;  // what those would get that are held back
  bool same = kept == link.crossings.size();
  while (!same && users > 0) {
    share = std::max<std::int64_t>(1, left / users);
    if (share > now && !known) {
      for (std::size_t i = 0; i < kept; ++i)
        if (demands_[i].rate == now)
          demands_[i].rate = least_level(flows_[demands_[i].flow], number);
      known = true;
    }
    const std::size_t before = std::exchange(kept, 0);
    for (std::size_t i = 0; i < before; ++i) {
      demands_[kept] = demands_[i];
      if (!leave_out(demands_[i])) ++kept;
    }
    same = kept == before;
  }
  return users > 0 ? share : kNoLevel;
}

void IncrementalMaxMin::set_level(std::uint32_t number, std::int64_t level) {
  const std::int64_t before = std::exchange(level_[number], level);
  changed_.push_back(number);
  if (same_are_held_) {
    for (const Demand& demand : demands_) {
      if (flows_[demand.flow].group != number) touch(demand.flow);
      set_rate(demand.flow, level, number);
    }
    return;
  }
  for (const Crossing& crossing : links_[number].crossings) {
    const std::int64_t rate = rate_[crossing.flow];
    if (rate != before && rate <= level) continue;
    const State& flow = flows_[crossing.flow];
    const std::int64_t now = level < rate ? level : least_level(flow, kNoLink);
    if (flow.group != number || now != level) touch(crossing.flow);
    set_rate(crossing.flow, now, number);
  }
}

void IncrementalMaxMin::set_rate(std::uint32_t flow, std::int64_t rate, std::uint32_t because_of) {
  const std::int64_t more = rate - rate_[flow];
  if (more == 0) return;
  rate_[flow] = rate;
  for (const Step& step : steps(flows_[flow]).subspan(1)) {
    Link& link = links_[step.link];
    if (!link.can_fill && level_[step.link] == kNoLevel) continue;
    link.load += more * step.count;
    if (step.link != because_of) make_due(step.link);
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
    const std::span<const Step> held_by = steps(state);
    const auto holds = std::find_if(held_by.begin(), held_by.end(),
                                    [&](const Step& step) { return level_[step.link] == rate; });
    moved_.push_back({flow, holds->link});
    state.group = holds->link;
  }
  touched_.clear();
}

std::int64_t IncrementalMaxMin::least_level(const State& flow, std::uint32_t without) const {
  std::int64_t least = kNoLevel;
  for (const Step& step : steps(flow))
    if (step.link != without) least = std::min(least, level_[step.link]);
  return least;
}

}  // namespace trainyard::engine
