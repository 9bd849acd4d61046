// Who speaks with whom where a parameter server updates: its players and their connections.
//
// Players behind the ranks. Synchronous: shard j, which hears all ranks. Where each rank goes at
// its own pace: one for each shard and rank, shard after shard, so that none waits for another's
// gradients; one for each shard that sends the first parameters; where ranks may be only so far
// ahead, the clock that counts their steps.
#pragma once

#include <string_view>

#include "sim/plan/cast.h"
#include "sim/plan/replicas/server/shards.h"
#include "sim/recipe/recipe.h"

namespace trainyard::plan {

// What ranks and their clock tell each other.
inline constexpr Bytes kStepNumber = Bytes(8);

// Whether ranks do not wait for each other's gradients.
bool at_own_pace(const recipe::ParallelPlan& plan);

class ServerMessages {
 public:
  // All references must outlive this.
  ServerMessages(Cast& cast, const recipe::ParallelPlan& plan, const ServerShards& shards)
      : cast_(cast),
        plan_(plan),
        shards_(shards),
        ranks_(static_cast<std::uint32_t>(plan.degrees.world_size())) {}

  // Between every rank and every shard, to_peer() by number: of a rank ServerShards::peer(), of a
  // shard that hears all the rank, of one that hears a rank 0.
  ConnectionId pushes() { return exchange("gradients to the server", true); }
  ConnectionId pulls() { return exchange("parameters from the server", false); }
  // From those that send the first parameters, to_peer() by rank and by shard.
  ConnectionId first_pulls();
  // Steps that a rank has done, and those that it may begin; the clock's to_peer() by rank.
  ConnectionId steps_done() { return clock("steps done", true); }
  ConnectionId steps_allowed() { return clock("steps allowed", false); }
  // What a player of the server reads and writes in the memory of its host.
  ConnectionId memory();

  // Who hears the rank for the shard.
  Player shard(int shard, int rank) const;

 private:
  ConnectionId exchange(std::string_view name, bool to_server);
  ConnectionId clock(std::string_view name, bool to_clock);
  Player sender(int shard) const;
  std::uint32_t handlers() const;  // players that hear ranks

  Cast& cast_;
  const recipe::ParallelPlan& plan_;
  const ServerShards& shards_;
  std::uint32_t ranks_;
};

}  // namespace trainyard::plan
