// Which ranks communicate on which port.
#include <algorithm>

#include "sim/base/check.h"
#include "sim/plan/step_plan.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using recipe::Axis;
using recipe::RankMap;

namespace {

using Groups = std::vector<std::vector<Rank>>;

Groups groups_along(const RankMap& ranks, Axis axis) {
  Groups groups;
  for (int g = 0; g < ranks.groups(axis); ++g)
    groups.push_back(ranks.group(ranks.first_of_group(g, axis), axis));
  return groups;
}

// Ranks that have seen other tokens with the same parameters.
Groups replicas(const RankMap& ranks) {
  if (ranks.size(Axis::context) == 1) return groups_along(ranks, Axis::data);
  Groups groups;
  for (int g = 0; g < ranks.groups(Axis::data); ++g) {
    const Rank first = ranks.first_of_group(g, Axis::data);
    if (ranks.coordinate(first, Axis::context) == 0)
      groups.push_back(ranks.group(first, Axis::data, Axis::context));
  }
  return groups;
}

// With two copies of the network, stage s and its mirror image hold the same virtual stages, one of
// each copy: their groups become one.
Groups over_copies(const StepPlan& plan, const RankMap& ranks, Groups groups) {
  if (directions(plan.shape) == 1) return groups;
  Groups joined;
  for (std::vector<Rank>& group : groups) {
    const int stage = ranks.coordinate(group.front(), Axis::pipeline);
    const int mirror = plan.shape.stages - 1 - stage;
    if (mirror < stage) continue;
    const std::size_t own = group.size();
    for (std::size_t i = 0; i < own; ++i)
      group.push_back(ranks.peer(group[i], Axis::pipeline, mirror));
    std::sort(group.begin(), group.end());
    joined.push_back(std::move(group));
  }
  return joined;
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

Groups groups_on(const StepPlan& plan, const recipe::RankGrids& ranks, CollectivePort port) {
  switch (port) {
    case CollectivePort::tensor: return groups_along(ranks.dense, Axis::tensor);
    case CollectivePort::context: return groups_along(ranks.dense, Axis::context);
    case CollectivePort::expert: return groups_along(ranks.experts, Axis::context);
    case CollectivePort::expert_tensor: return groups_along(ranks.experts, Axis::tensor);
    case CollectivePort::data:
      if (plan.shard_ranks == 0) return over_copies(plan, ranks.dense, replicas(ranks.dense));
      return parts(replicas(ranks.dense), static_cast<std::size_t>(plan.shard_ranks), true);
    case CollectivePort::replica:
      if (plan.shard_ranks == 0) return {};
      return parts(replicas(ranks.dense), static_cast<std::size_t>(plan.shard_ranks), false);
    case CollectivePort::norm: return norm_groups(plan, ranks.dense);
    case CollectivePort::tables:
      if (plan.collectives[static_cast<std::size_t>(port)].empty()) return {};
      return groups_along(ranks.dense, Axis::data);
    case CollectivePort::expert_replica:
      if (plan.shard_ranks == 0) return {};
      return parts(groups_along(ranks.experts, Axis::data),
                   static_cast<std::size_t>(plan.expert_shard_ranks), false);
    case CollectivePort::to_host:
    case CollectivePort::to_device:
    case CollectivePort::host_memory:
    case CollectivePort::nvme_read:
    case CollectivePort::nvme_write: return {};  // each rank is alone
    case CollectivePort::expert_data:
      if (plan.shard_ranks > 0)
        return parts(groups_along(ranks.experts, Axis::data),
                     static_cast<std::size_t>(plan.expert_shard_ranks), true);
      return over_copies(plan, ranks.experts, groups_along(ranks.experts, Axis::data));
  }
  TRAINYARD_CHECK(false, "collective port {}", static_cast<int>(port));
  return {};
}

}  // namespace

StreamKind stream_of(CollectivePort port) {
  switch (port) {
    case CollectivePort::tensor: return StreamKind::tensor;
    case CollectivePort::context: return StreamKind::context;
    case CollectivePort::expert:
    case CollectivePort::expert_tensor:
    case CollectivePort::tables: return StreamKind::expert;
    case CollectivePort::data:
    case CollectivePort::expert_data:
    case CollectivePort::norm: return StreamKind::data;
    case CollectivePort::replica:
    case CollectivePort::expert_replica: return StreamKind::replica;
    case CollectivePort::to_host: return StreamKind::to_host;
    case CollectivePort::to_device: return StreamKind::to_device;
    case CollectivePort::host_memory: return StreamKind::host_optimizer;
    case CollectivePort::nvme_read: return StreamKind::nvme_read;
    case CollectivePort::nvme_write: return StreamKind::nvme_write;
  }
  TRAINYARD_CHECK(false, "collective port {}", static_cast<int>(port));
  return StreamKind::tensor;
}

OpGroup group_of(CollectivePort port) {
  switch (port) {
    case CollectivePort::tensor: return OpGroup::tensor;
    case CollectivePort::context: return OpGroup::context;
    case CollectivePort::expert:
    case CollectivePort::expert_tensor:
    case CollectivePort::tables: return OpGroup::expert;
    case CollectivePort::data:
    case CollectivePort::expert_data:
    case CollectivePort::replica:
    case CollectivePort::expert_replica:
    case CollectivePort::norm: return OpGroup::data;
    case CollectivePort::host_memory: return OpGroup::host_optimizer;
    case CollectivePort::to_host:
    case CollectivePort::to_device:
    case CollectivePort::nvme_read:
    case CollectivePort::nvme_write: return OpGroup::host_copy;
  }
  TRAINYARD_CHECK(false, "collective port {}", static_cast<int>(port));
  return OpGroup::tensor;
}

std::vector<std::vector<Rank>> groups_of(const StepPlan& plan, const recipe::RankGrids& ranks,
                                         CollectivePort port) {
  Groups groups = groups_on(plan, ranks, port);
  // All groups of a port are of one size.
  if (!groups.empty() && groups.front().size() == 1) groups.clear();
  return groups;
}

}  // namespace trainyard::plan
