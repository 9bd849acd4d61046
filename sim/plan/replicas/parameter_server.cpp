// Ranks push their gradients to a server, in one or more shards, which keeps the optimizer's states
// in the memory of its processors, updates the parameters there and sends them back.
//
//   bytes  n ranks that push S and pull S_w: n S into the servers, n S_w out of them; the busiest
//          link carries n S / k with k even shards, that of a ring 2 (n-1)/n S
//          where m neighbours sum theirs first: n/m S in and n/m S_w out
//   time   synchronous, one shard: n S / B + what is left of the sums, 3 (n-1) S / M + update / M +
//          n S_w / B, where B is the bandwidth of the server's network and M that of its memory
//
// Source: Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014;
// Jiang et al., BytePS, OSDI 2020 (bytes through a server against those of a ring).
#include <memory>
#include <numeric>

#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_part.h"
#include "sim/plan/replicas/server/messages.h"
#include "sim/plan/replicas/server/roles.h"

namespace trainyard::plan {

using recipe::ServerUpdates;

namespace {

// Steps of a rank that does not wait for all: those before what is measured, and those behind.
// Ranks start one after the other, and the first has done many when the last begins; where they may
// be so many apart, it takes some before they are.
struct OwnSteps {
  int before = 0, all = 0;
};
OwnSteps own_steps(const recipe::ParameterServers& servers, int ranks) {
  const bool stale = servers.updates == ServerUpdates::stale;
  const int before = 4 + (stale ? 3 * servers.staleness : 0);
  return {.before = before, .all = before + 12 + ranks / 2};
}

// A rank's side.
class PushAndPull : public ReplicaPart {
 public:
  explicit PushAndPull(ReplicaContext& context)
      : context_(context),
        shards_(context.step, context.work, context.plan),
        messages_(context.builder.connections().cast(), context.plan, shards_) {}

  // Layers leave with the last backward pass of a step.
  PassRole distinguishes(bool forward) const override {
    return {.last = !forward && context_.plan.data_parallel.parameter_servers.push_by_layer};
  }

  void start() override {
    if (!at_own_pace(context_.plan)) return;
    ProgramBuilder& builder = context_.builder;
    for (int shard = 0; shard < shards_.count(); ++shard) {
      if (const std::int64_t own = shards_.kept(0, shard); own > 0)
        builder.receive(to_peer(messages_.first_pulls(), static_cast<std::uint32_t>(shard)),
                        states(own).parameters, "pull first parameters");
    }
    wait_for_clock();
    builder.settle_waits("wait for the first parameters");
  }

  void after(int place) override {
    if (context_.role.last && ends_backward(context_.pass)) push(place);
  }

  void step(const StageParameters& /*stage*/, const std::vector<ChainRange>& /*copies*/) override {
    ProgramBuilder& builder = context_.builder;
    push(Push::kAtEnd);
    if (has_clock()) builder.send(messages_.steps_done(), kStepNumber, "tell of a step");
    for (const Push& push : pushes())
      for_each_peer(push, [&](std::uint32_t nth, std::int64_t parameters) {
        builder.receive(to_peer(messages_.pulls(), nth), states(parameters).parameters,
                        "pull parameters");
      });
    wait_for_clock();
    builder.settle_waits("wait for the parameter server");
    gather_parts();
  }

 private:
  StateBytes states(std::int64_t parameters) const {
    return state_bytes(parameters, context_.recipe, DataParallelStrategy{});
  }
  const std::vector<Push>& pushes() const { return shards_.pushes(context_.stage); }

  template <class Action>
  void for_each_peer(const Push& push, const Action& action) const {
    for (int nth = 0; nth < shards_.count(); ++nth)
      if (const std::int64_t own = push.parameters[static_cast<std::size_t>(nth)]; own > 0)
        action(static_cast<std::uint32_t>(nth), own);
  }

  void push(int place) {
    for (const Push& push : pushes()) {
      if (push.place != place) continue;
      const StreamSet made = sum_with_neighbours(push);
      for_each_peer(push, [&](std::uint32_t nth, std::int64_t parameters) {
        context_.builder.send(to_peer(messages_.pushes(), nth), states(parameters).gradients,
                              "push gradients", PairPart::backward, made);
      });
    }
  }

  // Of the ranks that sum their gradients before they push them.
  ConnectionId neighbours() const {
    return context_.builder.connections().replicas(false, shards_.summed_ranks());
  }
  std::int64_t summed(const Push& push) const {
    return shards_.summed_ranks() *
           std::accumulate(push.parameters.begin(), push.parameters.end(), std::int64_t{0});
  }
  // What a push waits for.
  StreamSet sum_with_neighbours(const Push& push) {
    if (shards_.summed_ranks() == 1) return kLayerTails;
    context_.builder.collective(StreamKind::replica, neighbours(),
                                {CollectiveKind::reduce_scatter, states(summed(push)).gradients},
                                kLayerTails, "sum gradients of neighbours");
    return stream_bit(StreamKind::replica);
  }
  void gather_parts() {
    if (shards_.summed_ranks() == 1) return;
    std::int64_t all = 0;
    for (const Push& push : pushes())
      all += summed(push);
    context_.builder.collective(StreamKind::replica, neighbours(),
                                {CollectiveKind::all_gather, states(all).parameters}, kLayerTails,
                                "gather parameters of neighbours");
    context_.builder.compute_waits_for(stream_bit(StreamKind::replica));
    context_.builder.settle_waits("wait for the parts of neighbours");
  }

  bool has_clock() const {
    return context_.plan.data_parallel.parameter_servers.updates == ServerUpdates::stale;
  }
  void wait_for_clock() {
    if (has_clock())
      context_.builder.receive(messages_.steps_allowed(), kStepNumber, "wait for the slowest");
  }

  ReplicaContext& context_;
  ServerShards shards_;
  ServerMessages messages_;
};

}  // namespace

DataParallelStrategy parameter_server(const recipe::DataParallelOptions& options,
                                      const recipe::TrainingRecipe& recipe, int ranks) {
  if (options.parameter_servers.device == recipe::ServerDevice::gpu)
    return gpu_shards(options, recipe, ranks);
  DataParallelStrategy strategy;
  strategy.updates_elsewhere = true;
  strategy.parts = {[](ReplicaContext& context) { return std::make_unique<PushAndPull>(context); }};
  strategy.add_roles = add_synchronous_servers;
  const recipe::ParameterServers& servers = options.parameter_servers;
  strategy.leaves_late = servers.backup_workers > 0;
  const bool waits = servers.updates == ServerUpdates::synchronous;
  if (waits && !strategy.leaves_late) return strategy;
  if (!waits) strategy.add_roles = add_servers_at_own_pace;
  const OwnSteps steps = own_steps(servers, waits ? 0 : ranks);
  strategy.own_steps = steps.all;
  strategy.steps_before = steps.before;
  strategy.counted = static_cast<double>(ranks - servers.backup_workers) / ranks;
  return strategy;
}

}  // namespace trainyard::plan
