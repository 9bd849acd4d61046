#include "sim/plan/stage_connections.h"

#include <algorithm>
#include <map>

#include "sim/base/check.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using recipe::Axis;
using recipe::RankMap;

namespace {

using RankGroups = std::vector<std::vector<Rank>>;

RankGroups groups_along(const RankMap& ranks, Axis axis) {
  RankGroups groups;
  for (int g = 0; g < ranks.groups(axis); ++g)
    groups.push_back(ranks.group(ranks.first_of_group(g, axis), axis));
  return groups;
}

// Ranks that have seen other tokens with the same parameters.
RankGroups replica_groups(const RankMap& ranks) {
  if (ranks.size(Axis::context) == 1) return groups_along(ranks, Axis::data);
  RankGroups groups;
  for (int g = 0; g < ranks.groups(Axis::data); ++g) {
    const Rank first = ranks.first_of_group(g, Axis::data);
    if (ranks.coordinate(first, Axis::context) == 0)
      groups.push_back(ranks.group(first, Axis::data, Axis::context));
  }
  return groups;
}

// With two copies of the network, stage s and its mirror image hold the same virtual stages, one of
// each copy: their groups become one.
RankGroups over_copies(const schedule::PipelineShape& shape, const RankMap& ranks,
                       RankGroups groups) {
  if (directions(shape) == 1) return groups;
  RankGroups joined;
  for (std::vector<Rank>& group : groups) {
    const int stage = ranks.coordinate(group.front(), Axis::pipeline);
    const int mirror = shape.stages - 1 - stage;
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
RankGroups parts(const RankGroups& groups, std::size_t size, bool neighbours) {
  RankGroups result;
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

// All ranks in so many groups, by a number of each.
template <class Number>
RankGroups groups_by(const RankMap& ranks, int count, const Number& number) {
  RankGroups groups(static_cast<std::size_t>(count));
  for (int r = 0; r < ranks.world_size(); ++r) {
    const auto rank = static_cast<Rank>(r);
    groups[static_cast<std::size_t>(number(rank))].push_back(rank);
  }
  return groups;
}

// All ranks, or those of one replica.
RankGroups norm_groups(const RankMap& ranks, bool over_all) {
  const int context = ranks.size(Axis::context);
  const int count = over_all ? 1 : ranks.size(Axis::data) * context;
  return groups_by(ranks, count, [&](Rank rank) {
    const int replica =
        ranks.coordinate(rank, Axis::data) * context + ranks.coordinate(rank, Axis::context);
    return replica % count;
  });
}

// The ranks of each stage, of all replicas or of each.
RankGroups stage_groups(const RankMap& ranks, bool over_replicas) {
  const int replicas = over_replicas ? 1 : ranks.size(Axis::data);
  return groups_by(ranks, ranks.size(Axis::pipeline) * replicas, [&](Rank rank) {
    const int replica = over_replicas ? 0 : ranks.coordinate(rank, Axis::data);
    return ranks.coordinate(rank, Axis::pipeline) * replicas + replica;
  });
}

// All groups of a connection are of one size; a rank alone has nothing to say.
Groups spoken(const RankGroups& groups) {
  return groups.empty() || groups.front().size() == 1 ? Groups() : Groups(groups);
}

// The same of groups_along().
Groups spoken_along(const RankMap& ranks, Axis axis) {
  Groups groups;
  std::vector<Player> members(static_cast<std::size_t>(ranks.size(axis)));
  for (int g = 0; members.size() > 1 && g < ranks.groups(axis); ++g) {
    const Rank first = ranks.first_of_group(g, axis);
    for (std::size_t place = 0; place < members.size(); ++place)
      members[place] = static_cast<Player>(ranks.peer(first, axis, static_cast<int>(place)));
    groups.add(members);
  }
  return groups;
}

double busiest(const std::vector<double>& loads) {
  return loads.empty() ? 1 : *std::max_element(loads.begin(), loads.end());
}

// Where reports list what ranks say: inside layers, between replicas, the norm, tables, then
// messages, then the host.
enum Place {
  kLayers = 0,
  kReplicas = 10,
  kAcross = 20,
  kNorm = 30,
  kTables = 40,
  kMessages = 50,
  kHost = 60,
};

struct LaneStreams {
  std::string_view name;
  StreamKind sends, receives;
};
constexpr std::array<LaneStreams, kLanes> kLaneStreams = {{
    {"activations down", StreamKind::send_forward, StreamKind::receive_forward},
    {"gradients up", StreamKind::send_backward, StreamKind::receive_backward},
    {"activations up", StreamKind::send_forward_up, StreamKind::receive_forward_up},
    {"gradients down", StreamKind::send_backward_up, StreamKind::receive_backward_up},
}};

struct HostStream {
  StreamKind stream;
  OpGroup group;
};
constexpr std::array<HostStream, kHostTransfers.size()> kHostStreams = {{
    {StreamKind::to_host, OpGroup::host_copy},
    {StreamKind::to_device, OpGroup::host_copy},
    {StreamKind::host_optimizer, OpGroup::host_optimizer},
    {StreamKind::nvme_read, OpGroup::host_copy},
    {StreamKind::nvme_write, OpGroup::host_copy},
}};

}  // namespace

ConnectionId StageConnections::layer(models::LayerGroup group) {
  const bool tables = group == models::LayerGroup::tables;
  const auto connect = [&](std::string_view name, StreamKind stream, OpGroup word,
                           const RankMap& ranks, Axis axis, double busiest_load) {
    return cast_.connect(name, [&] {
      return Connection{.place = tables ? kTables : kLayers + static_cast<int>(group),
                        .stream = stream,
                        .group = word,
                        .busiest_load = busiest_load,
                        .groups = spoken_along(ranks, axis)};
    });
  };
  const double load = busiest(plan_.expert_load);
  switch (group) {
    case models::LayerGroup::tensor:
      return connect("tensor parallel", StreamKind::tensor, OpGroup::tensor, ranks_.dense,
                     Axis::tensor, 1);
    case models::LayerGroup::context:
      return connect("context parallel", StreamKind::context, OpGroup::context, ranks_.dense,
                     Axis::context, 1);
    case models::LayerGroup::expert:
      return connect("expert parallel", StreamKind::expert, OpGroup::expert, ranks_.experts,
                     Axis::context, load);
    case models::LayerGroup::expert_tensor:
      return connect("expert tensor parallel", StreamKind::expert, OpGroup::expert, ranks_.experts,
                     Axis::tensor, load);
    case models::LayerGroup::tables:
      return connect("embedding tables", StreamKind::expert, OpGroup::expert, ranks_.dense,
                     Axis::data, 1);
  }
  TRAINYARD_CHECK(false, "layer group {}", static_cast<int>(group));
  return {};
}

ConnectionId StageConnections::replicas(bool experts, int shard_ranks) {
  return cast_.connect(experts ? "expert replicas" : "replicas", [&] {
    const RankMap& grid = experts ? ranks_.experts : ranks_.dense;
    RankGroups groups = experts ? groups_along(grid, Axis::data) : replica_groups(grid);
    groups = shard_ranks > 0 ? parts(groups, static_cast<std::size_t>(shard_ranks), true)
                             : over_copies(shape_, grid, std::move(groups));
    return Connection{.place = kReplicas + experts,
                      .stream = StreamKind::data,
                      .group = OpGroup::data,
                      .groups = spoken(groups)};
  });
}

ConnectionId StageConnections::across(bool experts, int shard_ranks) {
  TRAINYARD_CHECK(shard_ranks > 0, "replicas without shards");
  return cast_.connect(experts ? "shards of expert replicas" : "shards of replicas", [&] {
    const RankGroups groups =
        experts ? groups_along(ranks_.experts, Axis::data) : replica_groups(ranks_.dense);
    return Connection{
        .place = kAcross + experts,
        .stream = StreamKind::replica,
        .group = OpGroup::data,
        .groups = spoken(parts(groups, static_cast<std::size_t>(shard_ranks), false))};
  });
}

ConnectionId StageConnections::agreement() {
  return cast_.connect("agreement of replicas", [&] {
    const RankGroups groups = over_copies(shape_, ranks_.dense, replica_groups(ranks_.dense));
    return Connection{.place = kReplicas + 2,
                      .traffic = Traffic::meeting,
                      .stream = StreamKind::agreement,
                      .group = OpGroup::data,
                      .groups = spoken(groups)};
  });
}

ConnectionId StageConnections::gradient_norm(bool over_all) {
  return cast_.connect("gradient norm", [&] {
    return Connection{.place = kNorm,
                      .stream = StreamKind::data,
                      .group = OpGroup::data,
                      .groups = spoken(norm_groups(ranks_.dense, over_all))};
  });
}

ConnectionId StageConnections::scales(recipe::AmaxReduction how) {
  return cast_.connect("fp8 scales", [&] {
    const RankGroups groups = stage_groups(ranks_.dense, how == recipe::AmaxReduction::stage);
    return Connection{.place = kReplicas + 3,
                      .stream = StreamKind::agreement,
                      .group = OpGroup::data,
                      .groups = spoken(groups)};
  });
}

Groups StageConnections::lane_pairs(Lane lane) const {
  Groups pairs;
  const RankMap& ranks = ranks_.dense;
  std::vector<std::optional<int>> receivers;  // by stage
  for (int stage = 0; stage < ranks.size(Axis::pipeline); ++stage)
    receivers.push_back(receiver(shape_, lane, stage));
  for (int r = 0; r < ranks.world_size(); ++r) {
    const auto rank = static_cast<Rank>(r);
    const auto to = receivers[static_cast<std::size_t>(ranks.coordinate(rank, Axis::pipeline))];
    if (!to) continue;
    const std::array<Player, 2> pair = {static_cast<Player>(rank),
                                        static_cast<Player>(ranks.peer(rank, Axis::pipeline, *to))};
    pairs.add(pair);
  }
  return pairs;
}

Duration StageConnections::call_time(ConnectionId connection, CollectiveKind kind) const {
  const Connection& own = cast_.connections[connection];
  const bool layer = own.stream == StreamKind::tensor || own.stream == StreamKind::context ||
                     own.stream == StreamKind::expert;
  const bool gradients = own.stream == StreamKind::data && kind == CollectiveKind::all_reduce;
  if (own.groups.empty() || !(layer || gradients)) return {};
  const auto ranks = static_cast<std::int64_t>(own.groups[0].size());
  return later(call_.time.value(),
               Duration(checked_product(ranks, call_.per_rank.value().count())));
}

Connection StageConnections::message_lane(Lane lane, Groups pairs) const {
  const LaneStreams& own = kLaneStreams[static_cast<std::size_t>(lane)];
  return {.place = kMessages + static_cast<int>(lane),
          .traffic = Traffic::message,
          .stream = own.sends,
          .arrives_on = own.receives,
          .group = OpGroup::pipeline,
          .groups = std::move(pairs)};
}

ConnectionId StageConnections::lane(Lane lane) {
  return cast_.connect(kLaneStreams[static_cast<std::size_t>(lane)].name,
                       [&] { return message_lane(lane, lane_pairs(lane)); });
}

ConnectionId StageConnections::lane(Lane lane, const std::vector<std::pair<int, int>>& pairs) {
  const RankMap& ranks = ranks_.dense;
  std::map<int, std::uint32_t> sent, received;
  std::uint32_t peers = 1;
  for (const auto& [from, to] : pairs)
    peers = std::max({peers, ++sent[from], ++received[to]});
  const auto describe = [&] {
    Groups groups;
    for (int r = 0; r < ranks.world_size(); ++r) {
      const auto rank = static_cast<Rank>(r);
      for (const auto& [from, to] : pairs) {
        if (ranks.coordinate(rank, Axis::pipeline) != from) continue;
        const std::array<Player, 2> pair = {
            static_cast<Player>(rank), static_cast<Player>(ranks.peer(rank, Axis::pipeline, to))};
        groups.add(pair);
      }
    }
    return message_lane(lane, std::move(groups));
  };
  return cast_.connect(kLaneStreams[static_cast<std::size_t>(lane)].name, describe, peers);
}

ConnectionId StageConnections::host(HostTransfer transfer) {
  const HostStream& own = kHostStreams[static_cast<std::size_t>(transfer)];
  return cast_.connect(name(transfer), [&] {
    return Connection{.place = kHost + static_cast<int>(transfer),
                      .traffic = Traffic::host,
                      .host = transfer,
                      .stream = own.stream,
                      .group = own.group};
  });
}

}  // namespace trainyard::plan
