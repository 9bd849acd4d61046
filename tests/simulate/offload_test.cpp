// Offload of states to the host and to NVMe in bytes, time and memory, through programs, lowering
// and engine.
#include <doctest/doctest.h>

#include "tests/simulate/offload_toy.h"
#include "tests/support/reference_engine.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace toy;

// Ren et al., ZeRO-Offload, ATC 2021, section 3.2: 2M down and 2M up, by n ranks 1/n of it each.
TEST_CASE("the optimizer on the host costs 2 bytes a parameter down, 2 up and 28 in its memory") {
  constexpr std::int64_t kAll = kLayers * kParameters;
  for (const int ranks : {1, 2, 4}) {
    for (const char* kind : {"allreduce", "zero1", "zero2", "zero3", "distributed_optimizer"}) {
      CAPTURE(ranks);
      CAPTURE(kind);
      OffloadSetup setup(kind, ranks);
      setup.recipe.offload.optimizer = OffloadTo::cpu;
      const auto result = simulated(setup, offload_network({1, 2, 0}));
      const std::int64_t own = std::string_view(kind) == "allreduce" ? kAll : kAll / ranks;
      CHECK(moved(result->plan, "copy to the host") == 2 * own);
      CHECK(moved(result->plan, "copy to the device") == 2 * own);
      CHECK(moved(result->plan, "update in host memory") == 28 * own);
      const HostMemory& host = result->plan.cast.roles[0].host;
      CHECK(host.optimizer_state == Bytes(12 * own));
      CHECK(host.gradients == Bytes(2 * own));
      CHECK(host.memory() == Bytes(14 * own));
    }
  }
}

TEST_CASE("gradients of every micro-batch are added on the host where shards are reduced") {
  constexpr int kRanks = 2, kMicrobatches = 3;
  constexpr std::int64_t kOwn = kLayers * kParameters / kRanks;
  OffloadSetup setup("zero2", kRanks, kMicrobatches);
  setup.recipe.offload.optimizer = OffloadTo::cpu;
  const auto result = simulated(setup, offload_network({1, 2, 0}));
  CHECK(moved(result->plan, "copy to the host") == kMicrobatches * 2 * kOwn);
  CHECK(moved(result->plan, "update in host memory") == (28 + 3 * 2 * (kMicrobatches - 1)) * kOwn);
  setup.plan.data_parallel.kind = "zero1";  // accumulates whole gradients on the GPU
  CHECK(moved(simulated(setup, offload_network({1, 2, 0}))->plan, "copy to the host") == 2 * kOwn);
}

TEST_CASE("offloaded parameters go up before each gather and nothing goes up after the step") {
  constexpr int kRanks = 2, kMicrobatches = 3;
  constexpr std::int64_t kOwn = kLayers * kParameters / kRanks;
  OffloadSetup setup("zero3", kRanks, kMicrobatches);
  setup.recipe.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
  CHECK(moved(simulated(setup, offload_network({1, 2, 0}))->plan, "copy to the device") ==
        kMicrobatches * 2 * 2 * kOwn);
  setup.recipe.offload = {.optimizer = OffloadTo::nvme, .parameters = OffloadTo::nvme};
  const auto nvme = simulated(setup, offload_network({1, 2, 0}));
  CHECK(moved(nvme->plan, "read from NVMe") == (12 + kMicrobatches * 2 * 2) * kOwn);
  CHECK(moved(nvme->plan, "write to NVMe") == (12 + 2) * kOwn);
  CHECK(nvme->plan.cast.roles[0].host.nvme == Bytes((12 + 2) * kOwn));
  // fp32 shards of FSDP, in both directions.
  setup.plan.data_parallel.kind = "fsdp";
  setup.plan.data_parallel.reshard_after_forward = true;
  setup.recipe.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
  const auto fsdp = simulated(setup, offload_network({1, 2, 0}));
  CHECK(moved(fsdp->plan, "copy to the host") == kMicrobatches * 4 * kOwn);
  CHECK(fsdp->plan.cast.roles[0].host.memory() == Bytes((4 + 4 + 8) * kOwn));
}

// fp32 training: 8 bytes of states and 4 of parameters, which nobody else holds.
TEST_CASE("without a master copy the host updates the parameters themselves") {
  constexpr int kRanks = 2;
  constexpr std::int64_t kOwn = kLayers * kParameters / kRanks;
  OffloadSetup setup("zero3", kRanks);
  setup.recipe.precision.compute = setup.recipe.precision.gradients = Dtype::fp32;
  setup.recipe.precision.master_weights = MasterWeights::none;
  setup.recipe.offload = {.optimizer = OffloadTo::nvme};
  const auto states = simulated(setup, offload_network({1, 2, 0}));
  CHECK(states->plan.cast.roles[0].host.nvme == Bytes(12 * kOwn));
  CHECK(moved(states->plan, "read from NVMe") == 12 * kOwn);
  CHECK(moved(states->plan, "write to NVMe") == 12 * kOwn);
  CHECK(moved(states->plan, "copy to the device") == 4 * kOwn);
  setup.recipe.offload.parameters = OffloadTo::nvme;
  const auto both = simulated(setup, offload_network({1, 2, 0}));
  CHECK(both->plan.cast.roles[0].host.nvme == Bytes(12 * kOwn));
  CHECK(moved(both->plan, "read from NVMe") == (12 + 2 * 4) * kOwn);
  CHECK(moved(both->plan, "write to NVMe") == 12 * kOwn);
}

// 8 bytes of moments, 2 of remainders and the 2 of the weights, which they complete.
TEST_CASE("a host that keeps remainders updates the weights themselves too") {
  constexpr std::int64_t kOwn = kLayers * kParameters / 2;
  OffloadSetup setup("zero3", 2);
  setup.recipe.precision.compute = setup.recipe.precision.gradients = Dtype::bf16;
  setup.recipe.precision.master_weights = MasterWeights::remainder;
  setup.recipe.offload = {.optimizer = OffloadTo::nvme};
  const auto states = simulated(setup, offload_network({1, 2, 0}));
  CHECK(states->plan.cast.roles[0].host.nvme == Bytes(12 * kOwn));
  CHECK(moved(states->plan, "read from NVMe") == 12 * kOwn);
  CHECK(moved(states->plan, "write to NVMe") == 12 * kOwn);
  setup.recipe.offload.parameters = OffloadTo::nvme;
  const auto both = simulated(setup, offload_network({1, 2, 0}));
  CHECK(both->plan.cast.roles[0].host.nvme == Bytes(12 * kOwn));
  CHECK(moved(both->plan, "read from NVMe") == (12 + 2 * 2) * kOwn);
  CHECK(moved(both->plan, "write to NVMe") == 12 * kOwn);
}

TEST_CASE("memory of the GPU falls by exactly what is gone") {
  constexpr int kRanks = 2;
  constexpr std::int64_t kAll = kLayers * kParameters;
  const auto resident = [&](const char* kind, OffloadOptions offload) {
    OffloadSetup setup(kind, kRanks);
    setup.recipe.offload = offload;
    return peak(*simulated(setup, offload_network({1, 2, 0}))).resident.count();
  };
  const OffloadOptions states{.optimizer = OffloadTo::cpu};
  const OffloadOptions both{.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
  CHECK(resident("allreduce", {}) - resident("allreduce", states) == 12 * kAll);
  CHECK(resident("zero1", {}) - resident("zero1", states) == 12 * kAll / kRanks);
  CHECK(resident("zero2", {}) - resident("zero2", states) == 14 * kAll / kRanks);
  CHECK(resident("zero3", states) == 2 * kAll / kRanks);
  CHECK(resident("zero3", both) == 0);
  CHECK(resident("fsdp", both) == 0);
}

// A tile of the update is read from, and copied to, while others are updated. One rank, so that
// only these move: compute, then the gradients of the last layer, then the update.
TEST_CASE("the host's update takes as long as its slowest part, beside the first and last tile") {
  constexpr std::int64_t kTiles = 4, kTile = kLayers * kParameters / kTiles;
  const toy::Times times{1, 10 * kParameters, 0};
  OffloadSetup setup("allreduce", 1);
  setup.recipe.offload = {.optimizer = OffloadTo::cpu, .tile_parameters = kTile};
  const NetworkWork work = offload_network(times);
  const std::int64_t passes = kLayers * (times.forward + times.backward) + 2 * kParameters;
  CHECK(nanoseconds(*simulated(setup, work)) == passes + kTiles * 28 * kTile + 2 * kTile);
  // PCIe twenty times slower: the copies up stand in line.
  setup.cluster.server.pcie_bandwidth = BytesPerSecond(5e7);
  setup.recipe.offload.tile_parameters = kTile;
  const std::int64_t slow = kLayers * times.forward + times.backward +
                            std::max(kLayers * std::int64_t{20} * 2 * kParameters,
                                     (kLayers - 1) * times.backward + 40 * kParameters);
  CHECK(nanoseconds(*simulated(setup, work)) == slow + 28 * kTile + kTiles * 20 * 2 * kTile);
  setup.set_links(1e9);
  setup.recipe.offload.optimizer = OffloadTo::nvme;
  setup.cluster.server.nvme_write_bandwidth = BytesPerSecond(2.5e8);
  // Reading begins with the end of the passes; 48 a parameter written are more than 28 updated.
  const std::int64_t begin = passes - 2 * kParameters;
  CHECK(nanoseconds(*simulated(setup, work)) ==
        begin + 12 * kTile + 28 * kTile + kTiles * 48 * kTile);
  CHECK(moved(simulated(setup, work)->plan, "read from NVMe") == 12 * kTiles * kTile);
  CHECK(moved(simulated(setup, work)->plan, "write to NVMe") == 12 * kTiles * kTile);
  // Reading at a quarter of that: 48 a parameter read.
  std::swap(setup.cluster.server.nvme_read_bandwidth, setup.cluster.server.nvme_write_bandwidth);
  CHECK(nanoseconds(*simulated(setup, work)) ==
        begin + kTiles * 48 * kTile + 28 * kTile + 12 * kTile);
  const HostMemory host = simulated(setup, work)->plan.cast.roles[0].host;
  CHECK(host.nvme == Bytes(12 * kTiles * kTile));
  CHECK(host.buffers == Bytes(3 * 12 * kTile));
}

// f, b and c: a layer's forward, backward and copy. Adam takes 28 a parameter on the GPU.
// What a pass fetches for the next one stands beside its own layers.
TEST_CASE("whatever is offloaded, all memory is given back and the breakdown sums up") {
  for (const StrategyEntry& entry : data_parallel_strategies()) {
    if (entry.name == "nn_data_parallel") continue;  // which scenarios refuse
    for (const OffloadOptions& offload : choices(entry.name)) {
      for (const int pipeline : {1, 2}) {
        for (const bool plain : {true, false}) {
          CAPTURE(entry.name);
          CAPTURE(pipeline);
          CAPTURE(plain);
          CAPTURE(static_cast<int>(offload.optimizer));
          CAPTURE(static_cast<int>(offload.parameters));
          CAPTURE(offload.activations);
          Job own = offload_job(std::string(entry.name).c_str(), 4, pipeline, 2, 4);
          own.recipe.offload = offload;
          if (!plain) {
            own.plan.data_parallel.overlap_backward = false;
            own.plan.data_parallel.limit_all_gathers = false;
            own.plan.data_parallel.prefetch_layers = 2;
            own.recipe.recompute.form = Recompute::full;
            own.recipe.gradient_clipping = true;
          }
          const auto step = simulate_step(own);
          REQUIRE(std::holds_alternative<Trace>(step->outcome));
          for (const MemoryPeak& peak : step->trace().peaks)
            CHECK(peak.at_end == peak.resident);
          const StepReport report = summarize(own, *step);
          REQUIRE(report.host_memory.has_value());
          CHECK(report.host_memory->memory + report.host_memory->nvme > Bytes(0));
        }
      }
    }
  }
}

TEST_CASE("offload folds exactly and the reference engine agrees, closed form and flows") {
  for (const char* kind : {"zero2", "zero3", "fsdp"}) {
    for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
      CAPTURE(kind);
      CAPTURE(static_cast<int>(fidelity));
      Job own = offload_job(kind, 4, 1, 2, 2);
      own.fidelity = fidelity;
      own.network.change<Transformer>().layers = 3;
      own.recipe.offload = {.optimizer = OffloadTo::cpu, .activations = true};
      if (shards_parameters(kind)) own.recipe.offload.parameters = OffloadTo::cpu;
      const auto folded = simulate_step(own),
                 unfolded = simulate_step(own, {.unfold = true, .run = true});
      CHECK(folded->lowered.machine.actors.size() == 1);
      CHECK(folded->trace().end == unfolded->trace().end);
      CHECK(summarize(own, *folded).breakdown == summarize(own, *unfolded).breakdown);
      const testing::ReferenceResult reference = testing::run_reference(folded->lowered.machine);
      CHECK(reference.finished);
      CHECK(reference.last == folded->trace().end);
    }
  }
}

// GPUs behind one switch share its link evenly, in closed form and as flows; the host's memory is
// wide enough for all.
TEST_CASE("GPUs behind one PCIe switch have half of its link each") {
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
    const auto copies = [&](int per_switch) {
      Job own = offload_job("allreduce", 2, 1, 1, 2);
      own.fidelity = fidelity;
      own.cluster.server.gpus_per_pcie_switch = per_switch;
      own.recipe.offload.activations = true;
      own.recipe.offload.prefetch_layers = 0;
      const StepReport report = summarize(own, *simulate_step(own));
      return report.breakdown[static_cast<std::size_t>(TimeCategory::exposed_host_copy)];
    };
    const Duration alone = copies(1), shared = copies(2);
    CHECK(alone > Duration(0));
    const Duration off = shared - 2 * alone;
    CHECK(std::max(off, -off) < std::chrono::nanoseconds(1));  // rounded up once a copy
  }
}

// What a GPU sends is divided over its NICs; what it copies to its host is not.
TEST_CASE("copies to the host take as long however many NICs a GPU has") {
  const auto copies = [](int nics) {
    Job own = offload_job("allreduce", 2, 1, 1, 2);
    own.fidelity = Fidelity::flow;
    own.cluster.servers = 2;
    own.cluster.server.gpus = 1;
    own.cluster.server.nics = nics;
    own.recipe.offload.activations = true;
    own.recipe.offload.prefetch_layers = 0;
    const StepReport report = summarize(own, *simulate_step(own));
    return report.breakdown[static_cast<std::size_t>(TimeCategory::exposed_host_copy)];
  };
  const Duration one = copies(1);
  CHECK(one > Duration(0));
  const Duration off = copies(4) - one;
  CHECK(std::max(off, -off) < std::chrono::nanoseconds(1));  // rounded up once a copy
}

TEST_CASE("exposed copies and the host's update have categories of their own") {
  Job own = offload_job("zero2", 2, 1, 1, 2);
  own.recipe.offload.optimizer = OffloadTo::cpu;
  const StepReport report = summarize(own, *simulate_step(own));
  const auto part = [&](TimeCategory category) {
    return report.breakdown[static_cast<std::size_t>(category)];
  };
  CHECK(part(TimeCategory::optimizer) == Duration(0));
  // All ranks update at once, each with its part of the host's memory.
  const double shard = static_cast<double>(report.parameters) / 2;
  const Duration update = to_duration(Bytes(static_cast<std::int64_t>(28 * shard)) /
                                      (own.cluster.server.host_memory_bandwidth / 2));
  const Duration off = part(TimeCategory::host_optimizer) - update;
  CHECK(std::max(off, -off) < std::chrono::nanoseconds(1));
  CHECK(part(TimeCategory::exposed_host_copy) > Duration(0));
}

TEST_CASE("a host without room for what is offloaded is an answer with numbers") {
  Job own = offload_job("zero2", 4, 1, 1, 4);
  own.recipe.offload.optimizer = OffloadTo::cpu;
  const StepReport fits = summarize(own, *simulate_step(own));
  CHECK(fits.fits);
  REQUIRE(fits.host_memory.has_value());
  CHECK(fits.host_memory->server_memory == 4 * fits.host_memory->memory);
  own.cluster.server.host_memory = fits.host_memory->server_memory;
  CHECK(summarize(own, *simulate_step(own)).fits);
  own.cluster.server.host_memory = fits.host_memory->server_memory - Bytes(1);
  const StepReport over = summarize(own, *simulate_step(own));
  CHECK_FALSE(over.fits);
  CHECK(over.memory.fits);
  CHECK_FALSE(over.step_time.has_value());
}
