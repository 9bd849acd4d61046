#include <algorithm>
#include <limits>

#include "sim/base/check.h"
#include "sim/engine/sharing.h"

namespace trainyard::engine {
namespace {

constexpr std::uint32_t kUnused = std::numeric_limits<std::uint32_t>::max();

// Progressive filling of the links that flows use. A link's share never falls while others freeze
// (what leaves takes at most its part), so a heap of possibly outdated, hence too small, shares
// finds the least.
class Filling {
 public:
  Filling(const IdVector<LinkId, std::int64_t>& capacity, std::span<const Flow> flows,
          std::vector<std::int64_t>& rates)
      : flows_(flows), rates_(rates), number_(capacity.size(), kUnused) {
    rates_.assign(flows.size(), 0);  // 0: still rising
    for (const Flow& flow : flows) {
      TRAINYARD_CHECK(flow.limit >= 1, "flow with limit {}", flow.limit);
      for (const PathLink& step : flow.path)
        add(capacity, step);
    }
    index_flows();
    for (std::uint32_t link = 0; link < links_.size(); ++link)
      heap_.push_back({share(link), link});
    std::make_heap(heap_.begin(), heap_.end());
    by_limit_.resize(flows.size());
    for (std::uint32_t f = 0; f < flows.size(); ++f)
      by_limit_[f] = f;
    std::sort(by_limit_.begin(), by_limit_.end(), [this](std::uint32_t a, std::uint32_t b) {
      return flows_[a].limit != flows_[b].limit ? flows_[a].limit < flows_[b].limit : a < b;
    });
  }

  void run() {
    for (;;) {
      while (next_limit_ < by_limit_.size() && rates_[by_limit_[next_limit_]] != 0)
        ++next_limit_;
      if (next_limit_ == by_limit_.size()) return;
      freeze(std::min(least_share(), flows_[by_limit_[next_limit_]].limit));
    }
  }

 private:
  struct Link {
    std::int64_t left = 0, users = 0;
    std::uint32_t first = 0, last = 0;  // into crossing_
  };
  struct Candidate {
    std::int64_t share;
    std::uint32_t link;
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.share != b.share ? a.share > b.share : a.link > b.link;  // least on top
    }
  };

  void add(const IdVector<LinkId, std::int64_t>& capacity, const PathLink& step) {
    TRAINYARD_CHECK(index(step.link) < capacity.size(), "flow over link {} of {}", index(step.link),
                    capacity.size());
    TRAINYARD_CHECK(step.count >= 1, "flow crosses a link {} times", step.count);
    std::uint32_t& number = number_[step.link];
    if (number == kUnused) {
      TRAINYARD_CHECK(capacity[step.link] >= 1, "link {} has capacity {}", index(step.link),
                      capacity[step.link]);
      number = static_cast<std::uint32_t>(links_.size());
      links_.push_back({.left = capacity[step.link]});
    }
    links_[number].users += step.count;
    ++links_[number].last;
  }

  // Which flows cross each link. `last` holds counts before and the end of each range after.
  void index_flows() {
    std::uint32_t total = 0;
    for (Link& link : links_) {
      const std::uint32_t count = link.last;
      link.first = link.last = total;
      total += count;
    }
    crossing_.resize(total);
    for (std::uint32_t f = 0; f < flows_.size(); ++f)
      for (const PathLink& step : flows_[f].path)
        crossing_[links_[number_[step.link]].last++] = f;
  }

  std::int64_t share(std::uint32_t link) const {
    return std::max<std::int64_t>(1, links_[link].left / links_[link].users);
  }

  Candidate pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate top = heap_.back();
    heap_.pop_back();
    return top;
  }
  void push(std::uint32_t link) {
    heap_.push_back({share(link), link});
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::int64_t least_share() {
    while (!heap_.empty()) {
      const Candidate top = heap_.front();
      if (links_[top.link].users > 0 && share(top.link) == top.share) return top.share;
      pop();
      if (links_[top.link].users > 0) push(top.link);
    }
    return std::numeric_limits<std::int64_t>::max();
  }

  // All that saturates at `level` freezes together: one after the other, the remainders of the
  // division would go to whoever came last.
  void freeze(std::int64_t level) {
    frozen_.clear();
    while (!heap_.empty() && heap_.front().share <= level) {
      const std::uint32_t link = pop().link;
      if (links_[link].users == 0) continue;
      if (share(link) > level) {
        push(link);
        continue;
      }
      for (std::uint32_t i = links_[link].first; i < links_[link].last; ++i)
        set(crossing_[i], level);
    }
    for (std::size_t i = next_limit_; i < by_limit_.size() && flows_[by_limit_[i]].limit == level;
         ++i)
      set(by_limit_[i], level);
    for (std::uint32_t flow : frozen_) {
      for (const PathLink& step : flows_[flow].path) {
        Link& link = links_[number_[step.link]];
        link.left -= level * step.count;
        link.users -= step.count;
      }
    }
  }

  void set(std::uint32_t flow, std::int64_t rate) {
    if (rates_[flow] != 0) return;
    rates_[flow] = rate;
    frozen_.push_back(flow);
  }

  std::span<const Flow> flows_;
  std::vector<std::int64_t>& rates_;
  IdVector<LinkId, std::uint32_t> number_;  // of a link in links_
  std::vector<Link> links_;                 // the used ones
  std::vector<std::uint32_t> crossing_;
  std::vector<Candidate> heap_;
  std::vector<std::uint32_t> by_limit_;
  std::size_t next_limit_ = 0;
  std::vector<std::uint32_t> frozen_;
};

}  // namespace

void MaxMinSharing::rates(const IdVector<LinkId, std::int64_t>& capacity,
                          std::span<const Flow> flows, std::vector<std::int64_t>& rates) const {
  Filling(capacity, flows, rates).run();
}

}  // namespace trainyard::engine
