// The connections of the ranks of a pipeline's stages: each is added to the cast when a program
// first speaks on it, with its groups taken from the grids of ranks.
#pragma once

#include <utility>
#include <vector>

#include "sim/plan/cast.h"
#include "sim/plan/pipeline_messages.h"
#include "sim/recipe/rank_map.h"
#include "sim/recipe/recipe.h"

namespace trainyard::plan {

class StageConnections {
 public:
  // All references must outlive this.
  StageConnections(Cast& cast, const recipe::RankGrids& ranks, const recipe::ParallelPlan& plan,
                   const schedule::PipelineShape& shape, const recipe::CollectiveCall& call)
      : cast_(cast), ranks_(ranks), plan_(plan), shape_(shape), call_(call) {}

  // The connection of the collectives inside a layer.
  ConnectionId layer(models::LayerGroup group);

  // That of gradients and parameters among replicas of dense parameters, or of routed experts:
  // ranks that have seen other tokens with the same parameters, in data and context parallelism and
  // in both copies of the network, if there are two. `shard_ranks`: neighbours of them that share
  // one copy of what they shard; 0: all.
  ConnectionId replicas(bool experts, int shard_ranks);
  // That of the ranks with the same shard, one in each such part. Requires: shard_ranks > 0.
  ConnectionId across(bool experts, int shard_ranks);

  // On which the replicas of dense parameters agree to exchange.
  ConnectionId agreement();

  // That of one number from ranks whose gradients (or shards of them) together are the network's:
  // the ranks of one replica, or, `over_all`, all ranks.
  ConnectionId gradient_norm(bool over_all);

  // On which ranks agree on fp8 scales. Requires: how is not none.
  ConnectionId scales(recipe::AmaxReduction how);

  // Those of the pipeline's messages, and of what a player moves by itself.
  ConnectionId lane(Lane lane);
  // The same between any stages, to_peer() in the order of the pairs (from, to), which are those of
  // the whole lane.
  ConnectionId lane(Lane lane, const std::vector<std::pair<int, int>>& pairs);
  ConnectionId host(HostTransfer transfer);

  // Host time of a collective's call, beside its launch: inside layers, and where gradients are
  // reduced in all replicas. Calls of strategies that shard are coalesced, and none is counted.
  Duration call_time(ConnectionId connection, CollectiveKind kind) const;

  // For connections that only one strategy has.
  Cast& cast() { return cast_; }

 private:
  Groups lane_pairs(Lane lane) const;
  Connection message_lane(Lane lane, Groups pairs) const;

  Cast& cast_;
  const recipe::RankGrids& ranks_;
  const recipe::ParallelPlan& plan_;
  const schedule::PipelineShape& shape_;
  const recipe::CollectiveCall& call_;
};

}  // namespace trainyard::plan
