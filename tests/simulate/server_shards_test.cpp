// A parameter server in shards, by layer, and heard by ranks at their own pace.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/plan/replicas/server/shards.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/watch/step_watcher.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/cast.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using recipe::ServerUpdates;
using recipe::Sharding;

namespace {

// As in parameter_server_test: a byte takes a nanosecond of a server's network and of its memory.
constexpr int kLayers = 4;
constexpr std::int64_t kParameters = kLayers * 1200;
constexpr std::int64_t kPush = 2 * kParameters, kPull = 2 * kParameters;
constexpr std::int64_t kUpdate = 28 * kParameters;
constexpr toy::Times kTimes{.forward = 10, .backward = 20};
constexpr std::int64_t kCompute = kLayers * (kTimes.forward + kTimes.backward);

// One rank on each server, and servers behind them for the shards.
struct Setup {
  TrainingRecipe recipe;
  ParallelPlan plan;
  ClusterSpec cluster;
  LowerOptions options;
  toy::Times times = kTimes;
  std::vector<std::int64_t> parameters = std::vector<std::int64_t>(kLayers, 1200);

  Setup(int ranks, int shards) {
    recipe.global_batch = ranks;
    plan.degrees.data = ranks;
    plan.data_parallel.kind = "parameter_server";
    plan.data_parallel.parameter_servers.shards = shards;
    cluster = toy::cluster(1, ranks + shards);
    cluster.gpus_used.assign(static_cast<std::size_t>(ranks), 1);
    for (int shard = 0; shard < shards; ++shard) {
      plan.data_parallel.parameter_servers.servers.push_back(ranks + shard);
      cluster.gpus_used.push_back(0);
    }
    cluster.server.nic_latency = cluster.server.intra_latency = Duration(0);
    cluster.server.nic_bandwidth = cluster.server.host_memory_bandwidth = BytesPerSecond(1e9);
    options.fidelity = Fidelity::flow;
  }
  recipe::ParameterServers& servers() { return plan.data_parallel.parameter_servers; }
};

struct Run {
  toy::Result result;
  StepWindow window;
  UpdateReport updates;
  std::map<int, int> rounds;  // by rank: that it ended in the window
};

NetworkWork network(const Setup& setup) {
  NetworkWork work = toy::network(kLayers, setup.times);
  const models::LayerWork kind = work.kinds[0];
  work.kinds.clear();
  work.chain.clear();
  for (const std::int64_t parameters : setup.parameters) {
    work.chain.push_back(static_cast<int>(work.kinds.size()));
    work.kinds.push_back(kind);
    work.kinds.back().parameters = parameters;
  }
  return work;
}

std::unique_ptr<Run> simulated(const Setup& setup) {
  auto run = std::make_unique<Run>();
  toy::Result& result = run->result;
  result.plan = plan_step(network(setup), setup.recipe, setup.plan);
  const Topology topology(setup.cluster);
  result.lowered = lower_in_order(result.plan.cast, setup.cluster, &topology, toy::Compute(),
                                  *closed_form_message_cost(), setup.options);
  simulate::StepWatcher watcher(result.plan, result.lowered, {});
  engine::RunOptions options;
  options.observer = &watcher;
  result.outcome = engine::run(result.lowered.machine, options);
  run->window = watcher.finish(result.end());
  if (const auto updates = watcher.server_updates()) run->updates = *updates;
  return run;
}

std::int64_t nanoseconds(const Setup& setup) {
  return simulated(setup)->window.step().count() / 1000;
}

std::int64_t all_updates(const UpdateReport& report) {
  return std::accumulate(report.staleness.begin(), report.staleness.end(), std::int64_t{0});
}

std::vector<std::int64_t> held(Sharding sharding, const std::vector<std::int64_t>& parameters,
                               int shards) {
  Setup setup(2, shards);
  setup.parameters = parameters;
  setup.servers().sharding = sharding;
  const StepPlan plan = plan_step(network(setup), setup.recipe, setup.plan);
  std::vector<std::int64_t> held;
  for (const Role& role : plan.cast.roles)
    if (!role.on_gpu()) held.push_back(role.parameters);
  return held;
}

}  // namespace

TEST_CASE("k even shards take a k-th of the pushes, the sums, the update and the pulls") {
  for (const int ranks : {4, 8})
    for (const int shards : {1, 2, 4})
      for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow})
        for (const bool fold : {true, false}) {
          CAPTURE(ranks);
          CAPTURE(shards);
          CAPTURE(fold);
          Setup setup(ranks, shards);
          setup.options.fidelity = fidelity;
          setup.options.fold = fold;
          const std::int64_t served =
              ranks * kPush + 3 * (ranks - 1) * kPush + kUpdate + ranks * kPull;
          CHECK(nanoseconds(setup) == kCompute + served / shards);
        }
}

TEST_CASE("more shards than ranks are no faster than the ranks' own links") {
  Setup setup(2, 4);
  setup.servers().sharding = Sharding::even;
  // A rank pushes all of its gradients, and gets all parameters, through its one NIC.
  const std::int64_t served = (3 * kPush + kUpdate) / 4;
  CHECK(nanoseconds(setup) == kCompute + kPush + served + kPull);
}

// With as many shards as ranks each link is full in both laws. A rank's own link carries all it
// pushes and pulls, however many shards there are, which flows see and the closed form of a message
// does not.
TEST_CASE("closed forms of more shards than ranks are faster than the ranks' links allow") {
  const std::map<int, double> ratio = {{8, 1}, {9, 0.97}, {16, 0.75}, {32, 0.56}};
  for (const auto& [shards, expected] : ratio) {
    CAPTURE(shards);
    Setup setup(8, shards);
    const std::int64_t flows = nanoseconds(setup);
    setup.options.fidelity = Fidelity::closed_form;
    const std::int64_t closed = nanoseconds(setup);
    CHECK(static_cast<double>(closed) / static_cast<double>(flows) == about(expected).within(0.01));
    const std::int64_t least = kCompute + kPush + (3 * 7 * kPush + kUpdate) / shards + kPull;
    CHECK(flows >= least);
    CHECK((closed < least) == (shards > 9));
  }
}

TEST_CASE("layers are dealt in turn, by their sizes or by their names, and none is lost") {
  const std::vector<std::int64_t> layers = {100, 900, 300, 200, 500};
  CHECK(held(Sharding::even, layers, 4) == std::vector<std::int64_t>{500, 500, 500, 500});
  CHECK(held(Sharding::round_robin, layers, 2) == std::vector<std::int64_t>{900, 1100});
  CHECK(held(Sharding::size, layers, 2) == std::vector<std::int64_t>{1000, 1000});
  const std::vector<std::int64_t> named = held(Sharding::hash, layers, 3);
  CHECK(std::accumulate(named.begin(), named.end(), std::int64_t{0}) == 2000);
}

TEST_CASE("one large layer keeps whole layers from being divided well, and an even cut does not") {
  Setup whole(8, 4), even(8, 4);
  whole.parameters = even.parameters = {100, 100, 4500, 100};
  whole.servers().sharding = Sharding::size;
  const std::int64_t slow = nanoseconds(whole), fast = nanoseconds(even);
  CHECK(slow > 3 * fast);
}

TEST_CASE("layers that leave as their backward passes end never make a step longer") {
  for (const int shards : {1, 2, 4}) {
    for (const Sharding sharding : {Sharding::even, Sharding::round_robin}) {
      CAPTURE(shards);
      Setup at_end(4, shards), by_layer(4, shards);
      at_end.servers().sharding = by_layer.servers().sharding = sharding;
      by_layer.servers().push_by_layer = true;
      at_end.times = by_layer.times = {.forward = 10'000, .backward = 20'000};
      const std::int64_t late = nanoseconds(at_end), early = nanoseconds(by_layer);
      CHECK(early <= late);
      if (shards < kLayers) CHECK(early < late);
      // What only the first layer, whose gradients come last, still needs.
      CHECK(early >= kLayers * 30'000);
    }
  }
}

// Ranks that start apart and compute for long never meet at the server.
TEST_CASE("ranks at their own pace need no time but their own where the server is idle") {
  for (const ServerUpdates updates : {ServerUpdates::asynchronous, ServerUpdates::stale}) {
    Setup setup(4, 1);
    setup.times = {.forward = 100'000, .backward = 200'000};
    setup.cluster.server.host_memory_bandwidth = BytesPerSecond(1e15);
    setup.servers().updates = updates;
    setup.servers().staleness = 3;
    const auto run = simulated(setup);
    const std::int64_t step = kLayers * 300'000 + kPush + kPull;
    CHECK(run->window.step().count() / 1000 == step);
    CHECK(run->updates.per_s == about(4 * 1e9 / static_cast<double>(step)));
    // Every other rank has updated once in between.
    CHECK(run->updates.mean_staleness() == about(3));
    CHECK(run->updates.most_stale() == 3);
  }
}

TEST_CASE("what is measured begins when all ranks have, however many start one after the other") {
  for (const int ranks : {8, 32, 64}) {
    CAPTURE(ranks);
    Setup setup(ranks, 1);
    setup.cluster.server.host_memory_bandwidth = BytesPerSecond(1e15);
    setup.servers().updates = ServerUpdates::asynchronous;
    const auto run = simulated(setup);
    CHECK(run->updates.mean_staleness() == about(ranks - 1).within(0.1));
    CHECK(static_cast<double>(run->window.step().count()) / 1000 ==
          about(ranks * kPush).within(0.1));
  }
}

// In and out of the server at once, but for moments in which all ranks push or all pull.
TEST_CASE("a saturated link takes little longer than all that passes it") {
  Setup setup(16, 1);
  setup.cluster.server.host_memory_bandwidth = BytesPerSecond(1e15);
  setup.servers().updates = ServerUpdates::asynchronous;
  CHECK(nanoseconds(setup) >= 16 * kPush);
  CHECK(nanoseconds(setup) < 16 * kPush * 11 / 10);
}

TEST_CASE("a straggler slows ranks at their own pace by its share, and all others otherwise") {
  constexpr int kRanks = 4, kFactor = 4;
  const auto step = [&](ServerUpdates updates, int staleness, bool straggles) {
    Setup setup(kRanks, 1);
    setup.times = {.forward = 1'000'000, .backward = 2'000'000};
    setup.servers().updates = updates;
    if (updates == ServerUpdates::stale) setup.servers().staleness = staleness;
    if (straggles) setup.options.stragglers = {{.rank = 1, .compute_slowdown = kFactor}};
    return simulated(setup)->window.step();
  };
  const auto slowdown = [&](ServerUpdates updates, int staleness = 0) {
    return Seconds(step(updates, staleness, true)) / Seconds(step(updates, staleness, false));
  };
  CHECK(slowdown(ServerUpdates::synchronous) == about(kFactor).within(0.05));
  // Of n ranks n - 1 go on: the rate is (n - 1 + 1/k) / n.
  CHECK(slowdown(ServerUpdates::asynchronous) ==
        about(kRanks / (kRanks - 1 + 1.0 / kFactor)).within(0.05));
  for (const int bound : {0, 1, 5, 20})
    CHECK(slowdown(ServerUpdates::stale, bound) == about(kFactor).within(0.05));
}

TEST_CASE("no gradient is older than its bound lets it be") {
  for (const int bound : {0, 1, 2, 5}) {
    CAPTURE(bound);
    Setup setup(4, 2);
    setup.times = {.forward = 10'000, .backward = 20'000};
    setup.servers().updates = ServerUpdates::stale;
    setup.servers().staleness = bound;
    setup.options.stragglers = {{.rank = 2, .compute_slowdown = 3}};
    const auto run = simulated(setup);
    // Of each other rank: the steps that it may be ahead, the one that it is in, and what it was
    // ahead before.
    CHECK(run->updates.most_stale() <= 3 * (2 * bound + 1));
    CHECK(all_updates(run->updates) > 0);
    if (bound == 0) CHECK(run->updates.most_stale() <= 3);
  }
}

TEST_CASE("backup workers are not waited for, and so many gradients are dropped in every step") {
  constexpr int kRanks = 4;
  const auto setup = [&](int backup, int stragglers) {
    Setup made(kRanks, 1);
    made.times = {.forward = 1'000'000, .backward = 2'000'000};
    made.servers().backup_workers = backup;
    for (int rank = 0; rank < stragglers; ++rank)
      made.options.stragglers.push_back({.rank = rank + 1, .compute_slowdown = 3});
    return made;
  };
  const std::int64_t alone = nanoseconds(setup(0, 0));
  for (const int backup : {1, 2}) {
    CAPTURE(backup);
    const auto close = [&](int stragglers, double factor) {
      const auto run = simulated(setup(backup, stragglers));
      CHECK(Seconds(run->window.step()).count() ==
            about(factor * static_cast<double>(alone) / 1e9).within(0.05));
    };
    close(0, 1);
    close(backup, 1);
    close(backup + 1, 3);
    const StepPlan plan =
        plan_step(network(setup(backup, 0)), setup(backup, 0).recipe, setup(backup, 0).plan);
    const std::vector<Op>& ops = plan.cast.roles.back().program.blocks.front().ops;
    const auto heard =
        std::count_if(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::hear; });
    CHECK(heard == kRanks - backup);
  }
}

namespace {

// Bytes of one step over the busiest link.
std::int64_t hottest_link(const Setup& setup) {
  LowerOptions every = setup.options;
  every.fold = false;
  const StepPlan plan = plan_step(network(setup), setup.recipe, setup.plan);
  const Topology topology(setup.cluster);
  const Lowered lowered = lower_in_order(plan.cast, setup.cluster, &topology, toy::Compute(),
                                         *closed_form_message_cost(), every);
  std::map<std::uint32_t, std::int64_t> carried;
  const auto add = [&](const engine::Path& path, std::int64_t bytes) {
    for (const engine::PathLink& link : path)
      carried[static_cast<std::uint32_t>(link.link)] += link.count * bytes;
  };
  const engine::Machine& machine = lowered.machine;
  for (const engine::ActorId id : machine.actors.ids()) {
    const engine::Actor& actor = machine.actors[id];
    for (const engine::Call& call : actor.program->calls) {
      for (const Op& op : actor.program->blocks[call.block].ops) {
        if (op.kind == OpKind::send) {
          const engine::Channel& channel = machine.channels[actor.channels[op.port]];
          add(channel.path, machine.transfers[channel.transfers][op.subject].bytes.count());
        } else if (op.kind == OpKind::collective) {
          const engine::Communicator& group = machine.communicators[actor.communicators[op.port]];
          if (group.members.front() != id || group.members.size() < 2) continue;
          for (const engine::Path& path : group.paths)
            add(path, machine.transfers[group.transfers][op.subject].bytes.count());
        }
      }
    }
  }
  std::int64_t most = 0;
  for (const auto& [link, bytes] : carried)
    most = std::max(most, bytes);
  return most;
}

}  // namespace

// n S through a server, n S / k through each of k; 2 (n - 1) S / n along a ring, all but
// independent of n.
TEST_CASE(
    "the busiest link of a server carries what all push, that of a ring twice the gradients") {
  for (const int ranks : {4, 8, 16}) {
    CAPTURE(ranks);
    for (const int shards : {1, 2, 4})
      CHECK(hottest_link(Setup(ranks, shards)) == ranks * kPush / shards);
    Setup ring(ranks, 1);
    ring.plan.data_parallel = {};
    ring.plan.data_parallel.bucket_size = Bytes(1 << 30);
    ring.plan.data_parallel.first_bucket_size = Bytes(1 << 30);
    CHECK(hottest_link(ring) == 2 * (ranks - 1) * kPush / ranks);
  }
}
