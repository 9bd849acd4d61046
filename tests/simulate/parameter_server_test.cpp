// The parameter server in time and memory, through programs, lowering and engine.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Every byte takes a nanosecond, of a server's network and of its memory, and nothing has latency.
constexpr int kLayers = 3;
constexpr std::int64_t kParameters = kLayers * 1000;
constexpr std::int64_t kPush = 2 * kParameters, kPull = 2 * kParameters;
constexpr std::int64_t kUpdate = 28 * kParameters;  // Adam with 16-bit gradients
constexpr toy::Times kTimes{.forward = 10, .backward = 20};
constexpr std::int64_t kCompute = kLayers * (kTimes.forward + kTimes.backward);

// One rank on each server, and a server more without GPUs in use.
struct Setup {
  TrainingRecipe recipe;
  ParallelPlan plan;
  ClusterSpec cluster;
  LowerOptions options;

  explicit Setup(int ranks) {
    recipe.global_batch = ranks;
    plan.degrees.data = ranks;
    plan.data_parallel.kind = "parameter_server";
    plan.data_parallel.parameter_servers.servers = {ranks};
    cluster = toy::cluster(1, ranks + 1);
    cluster.gpus_used.assign(static_cast<std::size_t>(ranks), 1);
    cluster.gpus_used.push_back(0);
    cluster.server.nic_latency = cluster.server.intra_latency = Duration(0);
    cluster.server.nic_bandwidth = cluster.server.host_memory_bandwidth = BytesPerSecond(1e9);
  }
};

std::unique_ptr<toy::Result> simulated(const Setup& setup) {
  NetworkWork work = toy::network(kLayers, kTimes);
  work.kinds[0].parameters = kParameters / kLayers;
  auto result = std::make_unique<toy::Result>();
  result->plan = plan_step(work, setup.recipe, setup.plan);
  const Topology topology(setup.cluster);
  result->lowered = lower_in_order(result->plan.cast, setup.cluster, &topology, toy::Compute(),
                                   *closed_form_message_cost(), setup.options);
  result->outcome = run(result->lowered.machine);
  return result;
}

std::int64_t nanoseconds(const Setup& setup) {
  return simulated(setup)->end().count() / 1000;
}

std::int64_t expected(std::int64_t ranks) {
  return kCompute + ranks * kPush + 3 * (ranks - 1) * kPush + kUpdate + ranks * kPull;
}

Job job(int tensor, int data, int pipeline) {
  Transformer network = gpt(8, 512, 8, 8192);
  network.tied_embeddings = false;
  Job result;
  result.network = network;
  result.cluster = toy::cluster(4, tensor * data * pipeline / 4);
  result.cluster.server.host_memory_bandwidth = BytesPerSecond(1e11);
  result.recipe.global_batch = std::int64_t{2} * data;
  result.recipe.micro_batch.sequence_length = 256;
  result.plan.degrees = {.tensor = tensor, .data = data, .pipeline = pipeline};
  result.plan.data_parallel.kind = "parameter_server";
  return result;
}

}  // namespace

// However parameters are cut, whatever leaves first: a rank pushes its m-th of them.
TEST_CASE("neighbours push all gradients once between them, in shards, by layer or at the end") {
  for (const Sharding sharding : {Sharding::even, Sharding::size, Sharding::round_robin}) {
    for (const int shards : {1, 2}) {
      for (const bool by_layer : {false, true}) {
        CAPTURE(static_cast<int>(sharding));
        CAPTURE(shards);
        CAPTURE(by_layer);
        Setup setup(4);
        setup.options.fidelity = Fidelity::flow;
        ParameterServers& servers = setup.plan.data_parallel.parameter_servers;
        servers.summed_ranks = 2;
        servers.shards = shards;
        servers.sharding = sharding;
        servers.push_by_layer = by_layer;
        const auto result = simulated(setup);
        REQUIRE(std::holds_alternative<Trace>(result->outcome));
        const Cast& cast = result->plan.cast;
        std::int64_t pushed = 0, summed = 0;
        for (const Block& block : cast.roles[0].program.blocks) {
          for (const Op& op : block.ops) {
            if (op.kind == OpKind::send) pushed += cast.transfer(op).bytes.count();
            if (op.kind == OpKind::collective &&
                cast.transfer(op).kind == CollectiveKind::reduce_scatter)
              summed += cast.transfer(op).bytes.count();
          }
        }
        CHECK(pushed == kPush / 2);
        CHECK(summed == kPush);
      }
    }
  }
}

// m neighbours send each other (m-1)/m of their gradients, and then each its part of the sum, so
// that the server hears n/m times what one rank has, and adds as often less one.
TEST_CASE("neighbours that sum first leave the server an m-th of the bytes") {
  for (const int ranks : {4, 6, 12}) {
    for (const int summed : {1, 2, 3, 4, 6, 12}) {
      if (ranks % summed != 0) continue;
      CAPTURE(ranks);
      CAPTURE(summed);
      Setup setup(ranks);
      setup.options.fidelity = Fidelity::flow;
      setup.plan.data_parallel.parameter_servers.summed_ranks = summed;
      const std::int64_t groups = ranks / summed;
      const std::int64_t inside = (summed - 1) * (kPush / summed + kPull / summed);
      const std::int64_t whole =
          kCompute + inside + groups * kPush + 3 * (groups - 1) * kPush + kUpdate + groups * kPull;
      const std::int64_t found = nanoseconds(setup);
      CHECK(found >= whole);
      CHECK(found <= whole + 20);
    }
  }
}

TEST_CASE("a step takes n pushes, n - 1 sums, the update and n pulls") {
  for (const int ranks : {2, 4, 8})
    for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow})
      for (const bool fold : {true, false}) {
        CAPTURE(ranks);
        CAPTURE(fold);
        Setup setup(ranks);
        setup.options.fidelity = fidelity;
        setup.options.fold = fold;
        CHECK(nanoseconds(setup) == expected(ranks));
      }
}

TEST_CASE("a server with twice the NICs takes pushes in half the time where it is the narrow end") {
  Setup setup(4);
  setup.cluster.server.gpus = setup.cluster.server.nics = 2;
  CHECK(nanoseconds(setup) == expected(4) - 4 * kPush / 2);
}

TEST_CASE("a rank on the server's own machine pushes and pulls over PCIe") {
  Setup setup(2);
  setup.plan.data_parallel.parameter_servers.servers = {0};
  setup.cluster.server.pcie_bandwidth = BytesPerSecond(2e9);
  // The other one has the network for itself.
  CHECK(nanoseconds(setup) == kCompute + kPush + 3 * kPush + kUpdate + kPull / 2 + kPull);
}

TEST_CASE("a straggler whose gradients are heard first delays the step by its own delay") {
  Setup setup(4);
  setup.options.stragglers = {{.rank = 0, .compute_slowdown = 3}};
  CHECK(nanoseconds(setup) == expected(4) + 2 * kCompute);
}

TEST_CASE("ranks hold parameters and gradients, the server's host the rest") {
  const auto result = simulated(Setup(4));
  for (int rank = 0; rank < 4; ++rank) {
    const Role& role = result->plan.cast.role(static_cast<Player>(rank));
    CHECK(role.on_gpu());
    std::int64_t held = 0;
    for (const MemoryEffect& effect : role.program.resident)
      held += effect.bytes;
    CHECK(held == (2 + 2) * kParameters);
  }
  const Role& server = result->plan.cast.role(static_cast<Player>(4));
  CHECK(server.host_server == 4);
  CHECK(server.program.resident.empty());
  CHECK(server.host.parameters == Bytes(2 * kParameters));
  CHECK(server.host.gradients == Bytes(2 * kParameters));
  CHECK(server.host.optimizer_state == Bytes(12 * kParameters));
}

TEST_CASE("the server is no rank of the report, whatever divides the network") {
  for (const auto& [tensor, data, pipeline] :
       {std::array{1, 8, 1}, std::array{2, 2, 2}, std::array{1, 2, 4}}) {
    CAPTURE(tensor);
    CAPTURE(pipeline);
    Job one = job(tensor, data, pipeline);
    one.plan.pipeline.schedule = "1f1b";
    for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
      one.fidelity = fidelity;
      StepOptions every_rank;
      every_rank.unfold = true;
      const auto folded = simulate_step(one), unfolded = simulate_step(one, every_rank);
      CHECK(folded->trace().end == unfolded->trace().end);
      const StepReport report = summarize(one, *folded);
      CHECK(report.fits);
      CHECK(std::accumulate(report.ranks.begin(), report.ranks.end(), 0,
                            [](int sum, const auto& rank) { return sum + rank.count; }) == 8);
      for (const StepReport::RankBreakdown& rank : report.ranks) {
        CHECK(rank.stage < pipeline);
        CHECK(rank.breakdown[static_cast<std::size_t>(TimeCategory::exposed_dp)] > Duration(0));
        CHECK(rank.breakdown[static_cast<std::size_t>(TimeCategory::optimizer)] == Duration(0));
      }
      CHECK((report.pipeline_bytes == Bytes(0)) == (pipeline == 1));
      // Each part of the network once: fp16 parameters and gradients, fp32 master copy and moments.
      std::int64_t parameters = 0;
      for (int rank = 0; rank < 8; ++rank)
        if (rank / tensor % data == 0)
          parameters += folded->plan.cast.role(static_cast<Player>(rank)).parameters;
      CHECK(report.host_memory->server_memory == Bytes(16 * parameters));
      CHECK(report.host_memory->role == "parameter server");
    }
  }
}

TEST_CASE("a server whose host has too little memory does not fit") {
  Job one = job(1, 4, 1);
  one.cluster.server.host_memory = Bytes(1 << 20);
  const StepReport report = summarize(one, *simulate_step(one));
  CHECK_FALSE(report.fits);
  CHECK(report.memory.fits);
}

TEST_CASE("ranks on the server's own machine share a PCIe switch up and have it in turn down") {
  Setup setup(2);
  setup.plan.data_parallel.parameter_servers.servers = {0};
  setup.cluster = toy::cluster(2, 1);
  setup.cluster.server.intra_latency = Duration(0);
  setup.cluster.server.gpus_per_pcie_switch = 2;
  setup.cluster.server.pcie_bandwidth = BytesPerSecond(1e9);
  setup.cluster.server.host_memory_bandwidth = BytesPerSecond(1e10);
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
    setup.options.fidelity = fidelity;
    CHECK(nanoseconds(setup) == kCompute + 2 * kPush + (3 * kPush + kUpdate) / 10 + 2 * kPull);
  }
}
