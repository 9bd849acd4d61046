// MaxMinSharing, of which only what a change touches is computed anew.
//
// A link's level is the rate at which it is full: a flow's rate is the least level of what it
// crosses, its limit among them. What a link's level is follows from its flows alone,
//
//   level = the least s with s = max(1, floor((capacity - sum of d below s) / (users not below s)))
//
// where d is what a flow would get without this link; a link without such an s has none. Levels
// that all satisfy this are the levels of progressive filling, and no others do: the least of all
// shares capacity / users is the least level of either, and without its flows the argument begins
// again. So links whose flows changed are computed again, in any order, until none is left.
//
// A link cannot fill, and is left out, where the most that its flows can send, by their limits and
// by what each link alone would give, leaves a byte/s for each of its users, or where as many of
// the fastest would fit. Less does not do: shares are floored, so a link may hold back flows that
// fit (limits of 3, 3 and 5 on a link of 11 get 3 each).
//
// Source: Bertsekas & Gallager, Data Networks, 2nd ed., section 6.5.2; for the local condition
// Charny, Clark, Jain: Congestion control with explicit rate indication, ICC 1995.
#pragma once

#include <limits>
#include <map>
#include <span>

#include "sim/engine/flows/rate_groups.h"

namespace trainyard::engine {

// A group is what holds its flows back: a link, or a limit.
class IncrementalMaxMin final : public RateGroups {
 public:
  explicit IncrementalMaxMin(const IdVector<LinkId, std::int64_t>& capacity);

  // Cost: of add and remove, the links of the path; of divide, the flows on links whose level
  // changes, as often as it does, times the links of theirs.
  void add(std::uint32_t flow, const Path& path, std::int64_t limit) override;
  void remove(std::uint32_t flow) override;
  void divide() override;
  std::int64_t rate(std::uint32_t group) const override { return level_[group]; }
  std::size_t groups() const override { return level_.size(); }

  std::int64_t flow_rate(std::uint32_t flow) const { return rate_[flow]; }
  // How many levels were computed since the beginning.
  std::uint64_t computed() const { return computed_; }
  // How many of them for the flows that the link held back before.
  std::uint64_t shared_again() const { return shared_again_; }

 private:
  static constexpr std::uint32_t kNoGroup = std::numeric_limits<std::uint32_t>::max();
  struct Crossing {
    std::uint32_t flow, step;  // of the flow's steps
    std::int32_t count;
  };
  struct Step {
    std::uint32_t link;
    std::int32_t count;
    std::uint32_t place;  // in the link's crossings
  };
  struct Link {
    std::int64_t capacity = 0;
    std::int64_t users = 0;
    std::int64_t load = 0;     // of current rates
    std::int64_t most = 0;     // of what flows can send at most
    std::int64_t fastest = 0;  // the most that one of them could send, since the link was idle
    bool can_fill = false;     // otherwise it has no load and no level
    bool due = false;          // its level is to be computed
    std::vector<Crossing> crossings;
  };
  struct State {
    std::int64_t most = 0;               // that it can send
    std::uint32_t first = 0, steps = 0;  // into steps_; the first stands for `most`
    std::uint32_t group = kNoGroup;
    bool touched = false;  // its group may be another
  };
  struct Due {
    std::int64_t level;
    std::uint32_t link;
    friend bool operator<(const Due& a, const Due& b) {  // least on top
      return a.level != b.level ? a.level > b.level : a.link > b.link;
    }
  };
  struct Demand {
    std::int64_t rate;
    std::int32_t count;
    std::uint32_t flow;
  };

  std::uint32_t number_of(LinkId link);
  std::uint32_t number_of_limit(std::int64_t limit);
  std::uint32_t new_link(std::int64_t capacity, std::int64_t level);
  // Counts a flow in or out of a link (sign 1 or -1) and judges whether that can fill.
  void count(std::uint32_t number, std::int64_t most, std::int64_t users, int sign);
  void take_steps(State& flow, const Path& path);
  void make_due(std::uint32_t number);
  std::int64_t compute(std::uint32_t number);
  // The level of a link that holds back the flows that it holds back now, which are left in
  // demands_; max where it may hold back others.
  std::int64_t share_of_same(std::uint32_t number);
  void set_level(std::uint32_t number, std::int64_t level);
  void set_rate(std::uint32_t flow, std::int64_t rate, std::uint32_t because_of);
  void touch(std::uint32_t flow);
  void regroup();
  std::span<Step> steps(const State& flow) { return {steps_.data() + flow.first, flow.steps}; }
  std::span<const Step> steps(const State& flow) const {
    return {steps_.data() + flow.first, flow.steps};
  }
  std::int64_t least_level(const State& flow, std::uint32_t without) const;

  const IdVector<LinkId, std::int64_t>& capacity_;
  IdVector<LinkId, std::uint32_t> number_;  // in links_, of those that were used
  std::map<std::int64_t, std::uint32_t> limits_;
  std::vector<Link> links_;          // and limits, which are links of a level that stays
  std::vector<std::int64_t> level_;  // by link; max: none
  std::vector<State> flows_;
  std::vector<Step> steps_, merged_;
  std::vector<std::vector<std::uint32_t>> free_steps_;  // by how many follow
  std::vector<std::int64_t> rate_;                      // by flow
  std::vector<Due> due_;                                // a heap
  std::vector<std::uint32_t> touched_;
  std::vector<Demand> demands_;
  bool same_are_held_ = false;  // demands_ are those that the last computed level is for
  std::uint64_t computed_ = 0, shared_again_ = 0;
};

}  // namespace trainyard::engine
