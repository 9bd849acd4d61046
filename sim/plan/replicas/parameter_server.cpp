// Ranks push all their gradients to one server, which keeps their sum and the optimizer's states in
// the memory of its processors, updates the parameters there and sends them back. Synchronous: no
// rank goes on before all have been heard.
//
//   bytes  n ranks that push S and pull S_w: n S into the server, n S_w out of it; the busiest link
//          of a ring carries 2 (n-1)/n S
//   time   n S / B + what is left of the sums, 3 (n-1) S / M + update / M + n S_w / B, where B is
//          the bandwidth of the server's network and M that of its memory
//
// Source: Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014;
// Jiang et al., BytePS, OSDI 2020 (bytes through a server against those of a ring).
#include <array>
#include <memory>
#include <utility>

#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_part.h"
#include "sim/recipe/rank_map.h"

namespace trainyard::plan {

using recipe::Axis;
using recipe::ParallelPlan;
using recipe::TrainingRecipe;

namespace {

// Messages between every rank and the server, which is the player behind all ranks.
ConnectionId connect_ranks(Cast& cast, const ParallelPlan& plan, std::string_view name,
                           bool to_server) {
  const auto ranks = static_cast<std::uint32_t>(plan.degrees.world_size());
  const auto describe = [&] {
    Connection connection{.traffic = Traffic::message,
                          .stream = StreamKind::data,
                          .arrives_on = StreamKind::data,
                          .group = OpGroup::data};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::array<Player, 2> pair = {static_cast<Player>(rank), static_cast<Player>(ranks)};
      if (!to_server) std::swap(pair[0], pair[1]);
      connection.groups.add(pair);
    }
    return connection;
  };
  return cast.connect(name, describe, ranks);
}

ConnectionId pushes(Cast& cast, const ParallelPlan& plan) {
  return connect_ranks(cast, plan, "gradients to the server", true);
}
ConnectionId pulls(Cast& cast, const ParallelPlan& plan) {
  return connect_ranks(cast, plan, "parameters from the server", false);
}

// What one rank pushes and pulls, and what the server keeps of its part of the network.
StateBytes whole_states(std::int64_t parameters, const TrainingRecipe& recipe) {
  return state_bytes(parameters, recipe, DataParallelStrategy{});
}

// A rank's side.
class PushAndPull : public ReplicaPart {
 public:
  explicit PushAndPull(ReplicaContext& context) : context_(context) {}

  void step(const StageParameters& stage, const std::vector<ChainRange>& /*copies*/) override {
    ProgramBuilder& builder = context_.builder;
    Cast& cast = builder.connections().cast();
    const StateBytes states = whole_states(stage.dense, context_.recipe);
    builder.send(pushes(cast, context_.plan), states.gradients, "push gradients");
    builder.receive(pulls(cast, context_.plan), states.parameters, "pull parameters");
    builder.settle_waits("wait for the parameter server");
  }

 private:
  ReplicaContext& context_;
};

// The server's side: one block, as it hears the ranks in their order.
class ServerBuilder {
 public:
  ServerBuilder(Cast& cast, StageConnections& connections, const TrainingRecipe& recipe,
                const ParallelPlan& plan)
      : cast_(cast),
        recipe_(recipe),
        plan_(plan),
        ranks_(rank_grids(plan).dense),
        builder_(cast, connections),
        memory_(cast.connect("server's memory", [&] {
          Connection connection{.traffic = Traffic::host,
                                .host = HostTransfer::host_memory,
                                .stream = StreamKind::host_optimizer,
                                .group = OpGroup::host_optimizer};
          const auto server = static_cast<Player>(plan.degrees.world_size());
          connection.groups.add({&server, 1});
          return connection;
        })) {}

  Role build() {
    Role server;
    server.name = "parameter server";
    server.host_server = plan_.data_parallel.server;
    builder_.begin_block();
    receive_all(server);
    builder_.compute_waits_for(stream_bit(StreamKind::host_optimizer));
    builder_.settle_waits("wait for the update");
    send_all();
    builder_.call(builder_.end_block(), 0);
    server.calls.push_back({.kind = CallKind::step});
    server.round_calls.push_back(1);
    server.program = builder_.finish();
    for (std::string& stream : server.program.streams)
      stream = "parameter server: " + stream;
    return server;
  }

 private:
  std::int64_t parameters_of(int rank) const {
    return cast_.role(static_cast<Player>(rank)).parameters;
  }
  // Whether no rank before it holds the same part of the network.
  bool is_first_replica(int rank) const {
    const auto number = static_cast<Rank>(rank);
    return ranks_.coordinate(number, Axis::data) == 0 &&
           ranks_.coordinate(number, Axis::context) == 0;
  }

  // The first gradients of a part become the sum; each further ones are read beside it, and it is
  // written.
  void receive_all(Role& server) {
    Bytes updated;
    for (int rank = 0; rank < ranks_.world_size(); ++rank) {
      const std::int64_t parameters = parameters_of(rank);
      const StateBytes states = whole_states(parameters, recipe_);
      builder_.receive(to_peer(pushes(cast_, plan_), static_cast<std::uint32_t>(rank)),
                       states.gradients, "receive gradients");
      if (!is_first_replica(rank)) {
        touch(3 * states.gradients, "add gradients");
        continue;
      }
      const models::MemoryBound update =
          optimizer_kernel(parameters, recipe_, DataParallelStrategy{});
      updated = updated + update.read + update.written;
      server.parameters += parameters;
      server.host.parameters = server.host.parameters + states.parameters;
      server.host.gradients = server.host.gradients + states.gradients;
      server.host.optimizer_state = server.host.optimizer_state + states.optimizer_state;
    }
    touch(updated, "update parameters");
  }

  void touch(Bytes bytes, const char* label) {
    builder_.collective(StreamKind::host_optimizer, memory_, {CollectiveKind::broadcast, bytes},
                        stream_bit(StreamKind::data), label);
  }

  void send_all() {
    for (int rank = 0; rank < ranks_.world_size(); ++rank)
      builder_.send(to_peer(pulls(cast_, plan_), static_cast<std::uint32_t>(rank)),
                    whole_states(parameters_of(rank), recipe_).parameters, "send parameters");
  }

  Cast& cast_;
  const TrainingRecipe& recipe_;
  const ParallelPlan& plan_;
  recipe::RankMap ranks_;
  ProgramBuilder builder_;
  ConnectionId memory_;
};

void add_server(Cast& cast, StageConnections& connections, const TrainingRecipe& recipe,
                const ParallelPlan& plan) {
  Role server = ServerBuilder(cast, connections, recipe, plan).build();
  cast.role_of.push_back(static_cast<std::uint32_t>(cast.roles.size()));
  cast.roles.push_back(std::move(server));
}

}  // namespace

DataParallelStrategy parameter_server(const recipe::DataParallelOptions& /*options*/,
                                      const TrainingRecipe& /*recipe*/, int /*ranks*/) {
  DataParallelStrategy strategy;
  strategy.updates_elsewhere = true;
  strategy.parts = {[](ReplicaContext& context) { return std::make_unique<PushAndPull>(context); }};
  strategy.add_roles = add_server;
  return strategy;
}

}  // namespace trainyard::plan
