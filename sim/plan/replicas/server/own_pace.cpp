// Each rank at its own pace: a gradient updates the parameters when it comes, and its rank gets
// them as they are then. Ranks get their first parameters one after the other, as they would start.
// Where ranks may be at most s steps apart, a clock lets a rank begin step i when all have done
// step i - s - 1. What updates of different ranks do to the same numbers is not ordered, as without
// locks.
//
// Source: Dean et al., NIPS 2012 (Downpour SGD); Niu et al., Hogwild, NIPS 2011; Ho et al., NIPS
// 2013, section 2 (stale synchronous parallel).
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/replicas/server/role_builder.h"
#include "sim/plan/replicas/server/roles.h"

namespace trainyard::plan {

namespace {

class OwnPace {
 public:
  OwnPace(StepPlan& step, const models::NetworkWork& work, StageConnections& connections,
          const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan)
      : step_(step),
        connections_(connections),
        recipe_(recipe),
        plan_(plan),
        shards_(step, work, plan),
        messages_(step.cast, plan, shards_) {}

  void add_roles() {
    for (int shard = 0; shard < shards_.count(); ++shard)
      add_handlers(shard);
    for (int shard = 0; shard < shards_.count(); ++shard)
      add_sender(shard);
    if (plan_.data_parallel.parameter_servers.updates == recipe::ServerUpdates::stale) add_clock();
  }

 private:
  int ranks() const { return plan_.degrees.world_size(); }
  int server(int shard) const { return plan_.data_parallel.parameter_servers.server_of(shard); }
  std::string name(int shard) const {
    return shards_.count() == 1 ? "parameter server" : fmt::format("parameter server {}", shard);
  }
  ServerRoleBuilder builder(std::string name, int server) {
    return {step_, connections_, recipe_, messages_, std::move(name), server};
  }

  // One player for each rank. What the shard keeps it keeps once, with the sender.
  void add_handlers(int shard) {
    ServerRoleBuilder role = builder(name(shard) + ": gradients", server(shard));
    role.begin_block();
    for (const Push& push : shards_.pushes(0)) {
      const std::int64_t own = push.parameters[static_cast<std::size_t>(shard)];
      if (own == 0) continue;
      role.receive(messages_.pushes(), role.gradient_bytes(own), "receive gradients");
      role.touch(role.update_bytes(own), "update parameters");
      role.settle("wait for the update");
      role.send(messages_.pulls(), role.parameter_bytes(own), "send parameters");
    }
    role.end_block(step_.rounds.count);
    role.role.updates_shard = shard;
    role.finish(ranks());
  }

  void add_sender(int shard) {
    ServerRoleBuilder role = builder(name(shard), server(shard));
    const std::int64_t own = shards_.kept(0, shard);
    role.keep(own);
    role.begin_block();
    role.settle("start");
    for (int rank = 0; rank < ranks() && own > 0; ++rank)
      role.send(to_peer(messages_.first_pulls(), static_cast<std::uint32_t>(rank)),
                role.parameter_bytes(own), "send first parameters");
    role.end_block(1);
    role.role.round_calls.assign(static_cast<std::size_t>(step_.rounds.count), 1);
    role.finish(1);
  }

  void add_clock() {
    const int rounds = step_.rounds.count;
    const int ahead = plan_.data_parallel.parameter_servers.staleness;
    ServerRoleBuilder role = builder("clock of the ranks", server(0));
    const auto allow_all = [&] {
      for (int rank = 0; rank < ranks(); ++rank)
        role.send(to_peer(messages_.steps_allowed(), static_cast<std::uint32_t>(rank)), kStepNumber,
                  "allow a step");
    };
    role.begin_block();
    role.settle("start");
    for (int step = 0; step <= std::min(ahead, rounds); ++step)
      allow_all();
    role.end_block(1);
    for (const bool allows : {true, false}) {
      const int calls = allows ? std::max(0, rounds - ahead) : std::min(ahead, rounds);
      if (calls == 0) continue;
      role.begin_block();
      for (int rank = 0; rank < ranks(); ++rank)
        role.receive(to_peer(messages_.steps_done(), static_cast<std::uint32_t>(rank)), kStepNumber,
                     "hear of a step");
      role.settle("all have done a step");
      if (allows) allow_all();
      role.end_block(calls);
    }
    role.finish(1);
  }

  StepPlan& step_;
  StageConnections& connections_;
  const recipe::TrainingRecipe& recipe_;
  const recipe::ParallelPlan& plan_;
  ServerShards shards_;
  ServerMessages messages_;
};

}  // namespace

void add_servers_at_own_pace(StepPlan& step, const models::NetworkWork& work,
                             StageConnections& connections, const recipe::TrainingRecipe& recipe,
                             const recipe::ParallelPlan& plan) {
  OwnPace(step, work, connections, recipe, plan).add_roles();
}

}  // namespace trainyard::plan
