// A parameter server whose shards are on the ranks' own GPUs, an even part on each: a rank sends
// the other parts of its gradients to their GPUs, sums what it hears of its own, updates them, and
// sends them to all others.
//
//   bytes   n ranks with parameters of S: each sends (n-1)/n S twice and receives as much, as in a
//           ring, each part by itself
//   kernels each further gradient of a part is read beside the sum, which is written: 3 S / n
//   memory  the gradients of the others for its part, (n-1)/n S, until they are summed
//
// Source: tensorflow/benchmarks, tf_cnn_benchmarks, variable_mgr.py (parameter_server with
// local_parameter_device gpu: variables are dealt to the GPUs where least is).
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_part.h"
#include "sim/plan/stage_connections.h"

namespace trainyard::plan {

namespace {

constexpr const char* kGradients = "gradients of others";

// Between each rank of a group and all others, to_peer() n: that n + 1 places further, and of what
// it receives that n + 1 places before.
ConnectionId exchange(ReplicaContext& context, std::string_view name, StreamKind sends,
                      StreamKind receives) {
  Cast& cast = context.builder.connections().cast();
  const ConnectionId replicas = context.within(context.groups[0]);
  const auto describe = [&] {
    const Groups& groups = cast.connections[replicas].groups;
    Connection connection{.traffic = Traffic::message,
                          .stream = sends,
                          .arrives_on = receives,
                          .group = OpGroup::data,
                          .copied = true};
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::span<const Player> group = groups[g];
      for (std::size_t further = 1; further < group.size(); ++further)
        for (std::size_t own = 0; own < group.size(); ++own) {
          const std::array<Player, 2> pair = {group[own], group[(own + further) % group.size()]};
          connection.groups.add(pair);
        }
    }
    return connection;
  };
  return cast.connect(name, describe, static_cast<std::uint32_t>(context.groups[0].ranks - 1));
}

class ShardPart : public ReplicaPart {
 public:
  explicit ShardPart(ReplicaContext& context) : context_(context) {}

 protected:
  Bytes shard(std::int64_t parameters, Bytes StateBytes::*of) const {
    const StateBytes all = state_bytes(parameters, context_.recipe, DataParallelStrategy{});
    return Bytes(shard_of((all.*of).count(), context_.groups[0].ranks));
  }
  template <class Action>
  void for_each_peer(const Action& action) const {
    for (int peer = 0; peer + 1 < context_.groups[0].ranks; ++peer)
      action(static_cast<std::uint32_t>(peer));
  }

  ReplicaContext& context_;
};

class SumShard final : public ShardPart {
 public:
  using ShardPart::ShardPart;

  void hold(const StageParameters& stage, const StateBytes& /*states*/) override {
    const Bytes each = shard(stage.dense, &StateBytes::gradients);
    context_.builder.resident(MemoryKind::communication_buffers,
                              (context_.groups[0].ranks - 1) * each, kGradients);
  }

  PassRole distinguishes(bool forward) const override { return {.last = !forward && by_layer()}; }

  void after(int place) override {
    if (!by_layer() || !context_.role.last || !ends_backward(context_.pass)) return;
    push(context_.gradients_from(context_.groups[0], place));
  }

  void step(const StageParameters& stage, const std::vector<ChainRange>& /*copies*/) override {
    if (!by_layer()) push(stage.dense);
    ProgramBuilder& builder = context_.builder;
    const Bytes own = shard(stage.dense, &StateBytes::gradients);
    for_each_peer([&](std::uint32_t peer) {
      for (const Bytes bytes : pushed_)
        builder.receive(to_peer(connection(), peer), bytes, "receive gradients");
      context_.copy("add gradients", 2 * own, own, OpGroup::optimizer);
    });
  }

 private:
  bool by_layer() const { return context_.plan.data_parallel.parameter_servers.push_by_layer; }
  ConnectionId connection() {
    return exchange(context_, "gradients to shards", StreamKind::gather, StreamKind::data);
  }

  void push(std::int64_t parameters) {
    const Bytes bytes = shard(parameters, &StateBytes::gradients);
    if (bytes == Bytes(0)) return;
    pushed_.push_back(bytes);
    for_each_peer([&](std::uint32_t peer) {
      context_.builder.send(to_peer(connection(), peer), bytes, "push gradients");
    });
  }

  std::vector<Bytes> pushed_;  // to each other rank in a step, and as many from each
};

class HandOut final : public ShardPart {
 public:
  using ShardPart::ShardPart;

  void step(const StageParameters& stage, const std::vector<ChainRange>& /*copies*/) override {
    ProgramBuilder& builder = context_.builder;
    const Bytes own = shard(stage.dense, &StateBytes::parameters);
    const ConnectionId to = exchange(context_, "parameters from shards", StreamKind::gather_second,
                                     StreamKind::replica);
    for_each_peer(
        [&](std::uint32_t peer) { builder.send(to_peer(to, peer), own, "send parameters"); });
    for_each_peer(
        [&](std::uint32_t peer) { builder.receive(to_peer(to, peer), own, "pull parameters"); });
    builder.settle_waits("wait for parameters");
  }
};

}  // namespace

DataParallelStrategy gpu_shards(const recipe::DataParallelOptions& /*options*/,
                                const recipe::TrainingRecipe& /*recipe*/, int ranks) {
  DataParallelStrategy strategy;
  strategy.optimizer_shards = ranks;
  strategy.parts = {[](ReplicaContext& context) { return std::make_unique<SumShard>(context); },
                    optimizer_step(),
                    [](ReplicaContext& context) { return std::make_unique<HandOut>(context); }};
  return strategy;
}

}  // namespace trainyard::plan
