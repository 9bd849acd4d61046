// Synchronous: no rank goes on before all have been heard, or all but the backup workers, the last
// so many in each step: their gradients come and are not read. Pieces are summed, updated and sent
// back one by one, so that the last pushes find the first pulls under way where they come by layer.
#include <fmt/format.h>

#include "sim/plan/replicas/server/role_builder.h"
#include "sim/plan/replicas/server/roles.h"
#include "sim/recipe/rank_map.h"

namespace trainyard::plan {

using recipe::Axis;

namespace {

class SynchronousShard {
 public:
  SynchronousShard(ServerRoleBuilder& builder, ServerMessages& messages, const ServerShards& shards,
                   const recipe::ParallelPlan& plan, int shard)
      : builder_(builder),
        messages_(messages),
        shards_(shards),
        ranks_(rank_grids(plan).dense),
        backup_(plan.data_parallel.parameter_servers.backup_workers),
        shard_(shard) {}

  void write(int steps) {
    builder_.begin_block();
    const std::size_t pushes = shards_.pushes(0).size();
    for (std::size_t push = 0; push < pushes; ++push) {
      if (backup_ > 0)
        hear_first(push);
      else
        hear_all(push);
      answer_all(push);
    }
    builder_.end_block(steps);
  }

 private:
  std::int64_t parameters(int rank, std::size_t push) const {
    const int stage = ranks_.coordinate(static_cast<Rank>(rank), Axis::pipeline);
    return shards_.pushes(stage)[push].parameters[static_cast<std::size_t>(shard_)];
  }
  // Whether no rank before it pushes gradients of the same part of the network.
  bool is_first_replica(int rank) const {
    const auto number = static_cast<Rank>(rank);
    return ranks_.coordinate(number, Axis::data) < shards_.summed_ranks() &&
           ranks_.coordinate(number, Axis::context) == 0;
  }

  // The first gradients of a part become the sum; each further ones are read beside it, and it is
  // written.
  void hear_all(std::size_t push) {
    Bytes updated;
    for (int rank = 0; rank < ranks_.world_size(); ++rank) {
      const std::int64_t own = parameters(rank, push);
      if (own == 0) continue;
      builder_.receive(to_peer(messages_.pushes(), static_cast<std::uint32_t>(rank)),
                       builder_.gradient_bytes(own), "receive gradients");
      if (!is_first_replica(rank)) {
        builder_.touch(3 * builder_.gradient_bytes(own), "add gradients");
        continue;
      }
      updated = updated + builder_.update_bytes(own);
      builder_.keep(own);
    }
    if (updated > Bytes(0)) builder_.touch(updated, "update parameters");
  }

  // All ranks hold the same part.
  void hear_first(std::size_t push) {
    const std::int64_t own = parameters(0, push);
    if (own == 0) return;
    for (int heard = 0; heard < ranks_.world_size() - backup_; ++heard) {
      builder_.receive(messages_.pushes(), builder_.gradient_bytes(own), "hear gradients");
      if (heard > 0) builder_.touch(3 * builder_.gradient_bytes(own), "add gradients");
    }
    builder_.keep(own);
    builder_.touch(builder_.update_bytes(own), "update parameters");
  }

  // Shards begin with different ranks, so that not all of them send to the same.
  void answer_all(std::size_t push) {
    builder_.settle("wait for the update");
    const int ranks = ranks_.world_size();
    const int first = static_cast<int>(std::int64_t{shard_} * ranks / shards_.count());
    for (int nth = 0; nth < ranks; ++nth) {
      const int rank = (first + nth) % ranks;
      const std::int64_t own = parameters(rank, push);
      if (own > 0)
        builder_.send(to_peer(messages_.pulls(), static_cast<std::uint32_t>(rank)),
                      builder_.parameter_bytes(own), "send parameters");
    }
  }

  ServerRoleBuilder& builder_;
  ServerMessages& messages_;
  const ServerShards& shards_;
  recipe::RankMap ranks_;
  int backup_;
  int shard_;
};

}  // namespace

void add_synchronous_servers(StepPlan& step, const models::NetworkWork& work,
                             StageConnections& connections, const recipe::TrainingRecipe& recipe,
                             const recipe::ParallelPlan& plan) {
  const ServerShards shards(step, work, plan);
  ServerMessages messages(step.cast, plan, shards);
  for (int shard = 0; shard < shards.count(); ++shard) {
    ServerRoleBuilder builder(
        step, connections, recipe, messages,
        shards.count() == 1 ? "parameter server" : fmt::format("parameter server {}", shard),
        plan.data_parallel.parameter_servers.server_of(shard));
    SynchronousShard(builder, messages, shards, plan, shard).write(step.rounds.count);
    builder.finish(1);
  }
}

}  // namespace trainyard::plan
