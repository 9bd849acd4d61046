// Which ranks communicate with each other on each port.
#include <algorithm>

#include "sim/plan/step_plan.h"

namespace trainyard {
namespace {

using Groups = std::vector<std::vector<Rank>>;

// Stage s and its mirror image hold the same virtual stages, one of each copy: their ranks form one
// group. False if the mirror image's turn has added these ranks.
bool add_mirror_image(const StepPlan& plan, const RankMap& ranks, std::vector<Rank>& group) {
  const int stage = ranks.coordinate(group.front(), Axis::pipeline);
  const int mirror = plan.shape.stages - 1 - stage;
  if (mirror < stage) return false;
  const std::size_t own = group.size();
  for (std::size_t i = 0; i < own; ++i)
    group.push_back(ranks.peer(group[i], Axis::pipeline, mirror));
  std::sort(group.begin(), group.end());
  return true;
}

// All that hold the same part of the network.
Groups replicas(const StepPlan& plan, const RankMap& ranks) {
  const bool mirrored = directions(plan.shape) > 1;
  Groups groups;
  for (int g = 0; g < ranks.groups(Axis::data); ++g) {
    const Rank first = ranks.first_of_group(g, Axis::data);
    if (ranks.coordinate(first, Axis::context) != 0) continue;
    std::vector<Rank> group = ranks.group(first, Axis::data, Axis::context);
    if (mirrored && !add_mirror_image(plan, ranks, group)) continue;
    groups.push_back(std::move(group));
  }
  return groups;
}

// Every group cut into neighbours, `size` at a time; or the first of each such part, the second of
// each, and so on.
Groups parts(const Groups& groups, std::size_t size, bool neighbours) {
  Groups result;
  for (std::vector<Rank> all : groups) {
    std::sort(all.begin(), all.end());
    const std::size_t count = neighbours ? all.size() / size : size;
    for (std::size_t part = 0; part < count; ++part) {
      std::vector<Rank>& members = result.emplace_back();
      const std::size_t begin = neighbours ? part * size : part;
      const std::size_t end = neighbours ? begin + size : all.size();
      for (std::size_t at = begin; at < end; at += neighbours ? 1 : size)
        members.push_back(all[at]);
    }
  }
  return result;
}

// All ranks, or those of one replica.
Groups norm_groups(const StepPlan& plan, const RankMap& ranks) {
  if (plan.collectives[static_cast<std::size_t>(CollectivePort::norm)].empty()) return {};
  const int context = ranks.size(Axis::context);
  const int count = plan.norm_over_all ? 1 : ranks.size(Axis::data) * context;
  Groups groups(static_cast<std::size_t>(count));
  for (int r = 0; r < ranks.world_size(); ++r) {
    const auto rank = static_cast<Rank>(r);
    const int replica =
        ranks.coordinate(rank, Axis::data) * context + ranks.coordinate(rank, Axis::context);
    groups[static_cast<std::size_t>(replica % count)].push_back(rank);
  }
  return groups;
}

Groups along(const RankMap& ranks, Axis axis) {
  Groups groups;
  if (ranks.size(axis) == 1) return groups;
  for (int g = 0; g < ranks.groups(axis); ++g)
    groups.push_back(ranks.group(ranks.first_of_group(g, axis), axis));
  return groups;
}

}  // namespace

std::vector<std::vector<Rank>> groups_of(const StepPlan& plan, const RankGrids& grids,
                                         CollectivePort port) {
  const RankMap& ranks = grids.dense;
  const int copies = ranks.size(Axis::data) * ranks.size(Axis::context) * directions(plan.shape);
  const bool in_parts = plan.shard_ranks > 0 && plan.shard_ranks < copies;
  switch (port) {
    case CollectivePort::tensor: return along(ranks, Axis::tensor);
    case CollectivePort::context: return along(ranks, Axis::context);
    case CollectivePort::expert: return along(grids.experts, Axis::context);
    case CollectivePort::expert_tensor: return along(grids.experts, Axis::tensor);
    case CollectivePort::expert_data: return along(grids.experts, Axis::data);
    case CollectivePort::norm: return norm_groups(plan, ranks);
    case CollectivePort::replica:
      if (!in_parts) return {};
      return parts(replicas(plan, ranks), static_cast<std::size_t>(plan.shard_ranks), false);
    case CollectivePort::data:
      if (copies == 1) return {};
      if (!in_parts) return replicas(plan, ranks);
      return parts(replicas(plan, ranks), static_cast<std::size_t>(plan.shard_ranks), true);
  }
  return {};
}

}  // namespace trainyard
