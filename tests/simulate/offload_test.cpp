// Offload to the host and to NVMe in bytes, time and memory, through programs, lowering and engine.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "sim/plan/data_parallel.h"
#include "sim/simulate/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/reference_engine.h"

using namespace trainyard;

namespace {

// Kernels and collectives take a nanosecond a byte; so does every transfer to and from the host
// unless a test says otherwise.
constexpr int kLayers = 6;
constexpr std::int64_t kParameters = 1000, kActivations = 700;

NetworkWork network(const toy::Times& times, int layers = kLayers) {
  NetworkWork work = toy::network(layers, times);
  work.kinds[0].parameters = kParameters;
  work.kinds[0].activations = Bytes(kActivations);
  return work;
}

struct Setup {
  TrainingRecipe recipe;
  ParallelPlan plan;
  ClusterSpec cluster;

  explicit Setup(const char* kind, int ranks, int microbatches = 1) {
    recipe.global_batch = std::int64_t{ranks} * microbatches;
    plan.degrees.data = ranks;
    plan.data_parallel.kind = kind;
    plan.bucket_size = plan.first_bucket_size = Bytes(2 * kParameters);  // a layer
    cluster = toy::cluster(ranks, 1);
    set_links(1e9);
  }
  // Of one rank, in bytes per second.
  void set_links(double each) {
    const auto all = BytesPerSecond(each * cluster.server.gpus);
    cluster.server.pcie_bandwidth = BytesPerSecond(each);
    cluster.server.host_memory_bandwidth = all;
    cluster.server.nvme_read_bandwidth = cluster.server.nvme_write_bandwidth = all;
  }
};

std::unique_ptr<toy::Result> simulate(const Setup& setup, const NetworkWork& work) {
  auto result = std::make_unique<toy::Result>();
  result->plan = plan_step(work, setup.recipe, setup.plan);
  result->lowered = lower(result->plan, rank_grids(setup.plan), setup.cluster, nullptr,
                          toy::Compute(), toy::Messages(0), {});
  result->outcome = run(result->lowered.machine, {.record = Record::kernels});
  return result;
}

std::int64_t nanoseconds(const toy::Result& result) {
  return result.end().count() / 1000;
}

// Bytes that a rank of the first stage moves on a port in one step.
std::int64_t moved(const StepPlan& plan, CollectivePort port) {
  const Program& program = plan.stages[0].program;
  std::int64_t bytes = 0;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      if (op.kind == OpKind::collective && op.port == static_cast<std::uint32_t>(port))
        bytes += plan.collectives[op.port][op.subject].bytes.count();
  return bytes;
}

const MemoryPeak& peak(const toy::Result& result) {
  return std::get<Trace>(result.outcome).peaks[ActorId(0)];
}

// The most bytes of a kind beside the resident ones.
std::int64_t most(const toy::Result& result, MemoryKind kind) {
  std::int64_t level = 0, highest = 0;
  const std::vector<MemoryChange>& changes = std::get<Trace>(result.outcome).memory;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].actor != ActorId(0)) continue;
    if (changes[i].category == static_cast<std::uint8_t>(kind)) level += changes[i].bytes;
    if (i + 1 == changes.size() || changes[i + 1].at != changes[i].at)
      highest = std::max(highest, level);
  }
  return highest;
}

Job job(const char* kind, int data, int pipeline, int microbatches, int gpus_per_server) {
  Transformer network;
  network.layers = 8;
  network.hidden = 512;
  network.heads = network.kv_heads = 8;
  network.head_size = 64;
  network.ffn_hidden = 2048;
  network.vocabulary = 8192;
  network.tied_embeddings = false;
  Job result;
  result.network = network;
  result.cluster = toy::cluster(gpus_per_server, data * pipeline / gpus_per_server);
  ServerSpec& server = result.cluster.server;
  server.host_memory_bandwidth = BytesPerSecond(1e11);
  server.nvme_read_bandwidth = BytesPerSecond(2e10);
  server.nvme_write_bandwidth = BytesPerSecond(1e10);
  server.gpus_per_pcie_switch = 2;
  result.recipe.global_batch = std::int64_t{microbatches} * data;
  result.recipe.sequence_length = 256;
  result.recipe.offload.tile_parameters = 1 << 20;
  result.plan.degrees = {.data = data, .pipeline = pipeline};
  result.plan.bucket_size = Bytes(1 << 20);
  result.plan.data_parallel.kind = kind;
  result.plan.data_parallel.shard_size = data / 2;
  return result;
}

bool shards_parameters(std::string_view kind) {
  return kind == "zero3" || kind == "fsdp" || kind == "hsdp";
}

// All that a kind of data parallelism can offload.
std::vector<OffloadOptions> choices(std::string_view kind) {
  const OffloadTo none = OffloadTo::none, cpu = OffloadTo::cpu, nvme = OffloadTo::nvme;
  std::vector<OffloadOptions> all = {{.activations = true},
                                     {.activations = true, .fraction = 0.5, .prefetch_layers = 0}};
  if (kind == "local_sgd") return all;
  const bool layer_units = kind == "fsdp" || kind == "hsdp";
  for (const bool activations : {false, true}) {
    if (!layer_units) all.push_back({.optimizer = cpu, .activations = activations});
    if (!layer_units) all.push_back({.optimizer = nvme, .activations = activations});
    if (!shards_parameters(kind)) continue;
    all.push_back({.optimizer = cpu, .parameters = cpu, .activations = activations});
    if (!layer_units) all.push_back({.optimizer = nvme, .parameters = nvme});
  }
  static_cast<void>(none);
  return all;
}

}  // namespace

// Ren et al., ZeRO-Offload, ATC 2021, section 3.2: 2M down and 2M up, by n ranks 1/n of it each.
TEST_CASE("the optimizer on the host costs 2 bytes a parameter down, 2 up and 28 in its memory") {
  constexpr std::int64_t kAll = kLayers * kParameters;
  for (const int ranks : {1, 2, 4}) {
    for (const char* kind : {"allreduce", "zero1", "zero2", "zero3", "distributed_optimizer"}) {
      CAPTURE(ranks);
      CAPTURE(kind);
      Setup setup(kind, ranks);
      setup.recipe.offload.optimizer = OffloadTo::cpu;
      const auto result = simulate(setup, network({1, 2, 0}));
      const std::int64_t own = std::string_view(kind) == "allreduce" ? kAll : kAll / ranks;
      CHECK(moved(result->plan, CollectivePort::to_host) == 2 * own);
      CHECK(moved(result->plan, CollectivePort::to_device) == 2 * own);
      CHECK(moved(result->plan, CollectivePort::host_memory) == 28 * own);
      const HostMemory& host = result->plan.stages[0].host;
      CHECK(host.optimizer_state == Bytes(12 * own));
      CHECK(host.gradients == Bytes(2 * own));
      CHECK(host.memory() == Bytes(14 * own));
    }
  }
}

TEST_CASE("gradients of every micro-batch are added on the host where shards are reduced") {
  constexpr int kRanks = 2, kMicrobatches = 3;
  constexpr std::int64_t kOwn = kLayers * kParameters / kRanks;
  Setup setup("zero2", kRanks, kMicrobatches);
  setup.recipe.offload.optimizer = OffloadTo::cpu;
  const auto result = simulate(setup, network({1, 2, 0}));
  CHECK(moved(result->plan, CollectivePort::to_host) == kMicrobatches * 2 * kOwn);
  CHECK(moved(result->plan, CollectivePort::host_memory) ==
        (28 + 3 * 2 * (kMicrobatches - 1)) * kOwn);
  setup.plan.data_parallel.kind = "zero1";  // accumulates whole gradients on the GPU
  CHECK(moved(simulate(setup, network({1, 2, 0}))->plan, CollectivePort::to_host) == 2 * kOwn);
}

TEST_CASE("offloaded parameters go up before each gather and nothing goes up after the step") {
  constexpr int kRanks = 2, kMicrobatches = 3;
  constexpr std::int64_t kOwn = kLayers * kParameters / kRanks;
  Setup setup("zero3", kRanks, kMicrobatches);
  setup.recipe.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
  CHECK(moved(simulate(setup, network({1, 2, 0}))->plan, CollectivePort::to_device) ==
        kMicrobatches * 2 * 2 * kOwn);
  setup.recipe.offload = {.optimizer = OffloadTo::nvme, .parameters = OffloadTo::nvme};
  const auto nvme = simulate(setup, network({1, 2, 0}));
  CHECK(moved(nvme->plan, CollectivePort::nvme_read) == (12 + kMicrobatches * 2 * 2) * kOwn);
  CHECK(moved(nvme->plan, CollectivePort::nvme_write) == (12 + 2) * kOwn);
  CHECK(nvme->plan.stages[0].host.nvme == Bytes((12 + 2) * kOwn));
  // fp32 shards of FSDP, in both directions.
  setup.plan.data_parallel.kind = "fsdp";
  setup.plan.data_parallel.reshard_after_forward = true;
  setup.recipe.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
  const auto fsdp = simulate(setup, network({1, 2, 0}));
  CHECK(moved(fsdp->plan, CollectivePort::to_host) == kMicrobatches * 4 * kOwn);
  CHECK(fsdp->plan.stages[0].host.memory() == Bytes((4 + 4 + 8) * kOwn));
}

// fp32 training: 8 bytes of states and 4 of parameters, which nobody else holds.
TEST_CASE("without a master copy the host updates the parameters themselves") {
  constexpr int kRanks = 2;
  constexpr std::int64_t kOwn = kLayers * kParameters / kRanks;
  Setup setup("zero3", kRanks);
  setup.recipe.compute = setup.recipe.gradients = Dtype::fp32;
  setup.recipe.master_weights = false;
  setup.recipe.offload = {.optimizer = OffloadTo::nvme};
  const auto states = simulate(setup, network({1, 2, 0}));
  CHECK(states->plan.stages[0].host.nvme == Bytes(12 * kOwn));
  CHECK(moved(states->plan, CollectivePort::nvme_read) == 12 * kOwn);
  CHECK(moved(states->plan, CollectivePort::nvme_write) == 12 * kOwn);
  CHECK(moved(states->plan, CollectivePort::to_device) == 4 * kOwn);
  setup.recipe.offload.parameters = OffloadTo::nvme;
  const auto both = simulate(setup, network({1, 2, 0}));
  CHECK(both->plan.stages[0].host.nvme == Bytes(12 * kOwn));
  CHECK(moved(both->plan, CollectivePort::nvme_read) == (12 + 2 * 4) * kOwn);
  CHECK(moved(both->plan, CollectivePort::nvme_write) == 12 * kOwn);
}

TEST_CASE("memory of the GPU falls by exactly what is gone") {
  constexpr int kRanks = 2;
  constexpr std::int64_t kAll = kLayers * kParameters;
  const auto resident = [&](const char* kind, OffloadOptions offload) {
    Setup setup(kind, kRanks);
    setup.recipe.offload = offload;
    return peak(*simulate(setup, network({1, 2, 0}))).resident.count();
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
  Setup setup("allreduce", 1);
  setup.recipe.offload = {.optimizer = OffloadTo::cpu, .tile_parameters = kTile};
  const NetworkWork work = network(times);
  const std::int64_t passes = kLayers * (times.forward + times.backward) + 2 * kParameters;
  CHECK(nanoseconds(*simulate(setup, work)) == passes + kTiles * 28 * kTile + 2 * kTile);
  // PCIe twenty times slower: the copies up stand in line.
  setup.cluster.server.pcie_bandwidth = BytesPerSecond(5e7);
  setup.recipe.offload.tile_parameters = kTile;
  const std::int64_t slow = kLayers * times.forward + times.backward +
                            std::max(kLayers * std::int64_t{20} * 2 * kParameters,
                                     (kLayers - 1) * times.backward + 40 * kParameters);
  CHECK(nanoseconds(*simulate(setup, work)) == slow + 28 * kTile + kTiles * 20 * 2 * kTile);
  setup.set_links(1e9);
  setup.recipe.offload.optimizer = OffloadTo::nvme;
  setup.cluster.server.nvme_write_bandwidth = BytesPerSecond(2.5e8);
  // Reading begins with the end of the passes; 48 a parameter written are more than 28 updated.
  const std::int64_t begin = passes - 2 * kParameters;
  CHECK(nanoseconds(*simulate(setup, work)) ==
        begin + 12 * kTile + 28 * kTile + kTiles * 48 * kTile);
  const HostMemory host = simulate(setup, work)->plan.stages[0].host;
  CHECK(host.nvme == Bytes(12 * kTiles * kTile));
  CHECK(host.buffers == Bytes(3 * 12 * kTile));
}

TEST_CASE("activations go down and come up once in every micro-batch") {
  for (const int microbatches : {1, 4}) {
    Setup setup("allreduce", 1, microbatches);
    setup.recipe.offload.activations = true;
    const auto all = simulate(setup, network({1, 2, 0}));
    CHECK(moved(all->plan, CollectivePort::to_host) == microbatches * kLayers * kActivations);
    CHECK(moved(all->plan, CollectivePort::to_device) == microbatches * kLayers * kActivations);
    CHECK(all->plan.stages[0].host.activations == Bytes(kLayers * kActivations));
    setup.recipe.offload.fraction = 0.5;
    const auto half = simulate(setup, network({1, 2, 0}));
    CHECK(moved(half->plan, CollectivePort::to_host) == microbatches * kLayers * kActivations / 2);
  }
}

TEST_CASE("activation offload over a fast link takes no time") {
  const toy::Times times{1000, 2000, 0};
  for (const int prefetch : {0, 1}) {
    Setup setup("allreduce", 1, 3);
    setup.set_links(4e18);
    const std::int64_t plain = nanoseconds(*simulate(setup, network(times)));
    setup.recipe.offload.activations = true;
    setup.recipe.offload.prefetch_layers = prefetch;
    CHECK(nanoseconds(*simulate(setup, network(times))) == plain);
  }
}

// f, b and c: a layer's forward, backward and copy. Adam takes 28 a parameter on the GPU.
TEST_CASE("activation offload is hidden but for the last copy down and the first up, or bounds") {
  constexpr int kMicrobatches = 3;
  constexpr std::int64_t kCopy = kActivations, kStep = 28 * kParameters;
  const auto take = [&](const toy::Times& times, int layers, int prefetch) {
    Setup setup("allreduce", 1, kMicrobatches);
    setup.recipe.offload.activations = true;
    setup.recipe.offload.prefetch_layers = prefetch;
    return nanoseconds(*simulate(setup, network(times, layers))) - layers * kStep;
  };
  const toy::Times fast{kCopy + 1, kCopy + 2, 0}, slow{kCopy / 7, kCopy / 5, 0};
  for (const int layers : {1, 2, kLayers}) {
    CAPTURE(layers);
    CHECK(take(fast, layers, 1) ==
          kMicrobatches * (layers * (fast.forward + fast.backward) + 2 * kCopy));
    CHECK(take(slow, layers, 1) ==
          kMicrobatches * (slow.forward + 2 * layers * kCopy + slow.backward));
    // Nothing overlaps.
    for (const toy::Times& times : {fast, slow})
      CHECK(take(times, layers, 0) ==
            kMicrobatches * layers * (times.forward + times.backward + 2 * kCopy));
  }
}

TEST_CASE("with n layers of prefetch n + 1 layers of activations are on the GPU") {
  for (const std::int64_t speed : {1, 10, 1000}) {
    for (const int prefetch : {0, 1}) {
      CAPTURE(speed);
      CAPTURE(prefetch);
      Setup setup("allreduce", 1, 2);
      setup.recipe.offload.activations = true;
      setup.recipe.offload.prefetch_layers = prefetch;
      const auto result = simulate(setup, network({10 * speed, 20 * speed, 0}));
      CHECK(most(*result, MemoryKind::activations) == (prefetch + 1) * kActivations);
    }
  }
}

// What a pass fetches for the next one stands beside its own layers.
TEST_CASE("pipelines hold one layer more and hide the first fetch of a pass") {
  const toy::Times times{2 * kActivations, 3 * kActivations, 0};
  const auto result = [&](bool offloads) {
    Setup setup("allreduce", 1, 8);
    setup.plan.degrees.pipeline = 2;
    setup.cluster = toy::cluster(2, 1);
    setup.set_links(1e9);
    setup.recipe.offload.activations = offloads;
    return simulate(setup, network(times));
  };
  const auto offloaded = result(true), plain = result(false);
  CHECK(most(*offloaded, MemoryKind::activations) <= 3 * kActivations);
  CHECK(most(*plain, MemoryKind::activations) == 2 * 3 * kActivations);
  CHECK(offloaded->plan.stages[0].host.activations == Bytes(2 * 3 * kActivations));
  // The last stage turns round at once, so it shows one copy down and one up; the first does not.
  CHECK(nanoseconds(*offloaded) - nanoseconds(*plain) <= 8 * 2 * kActivations);
}

// P57.
TEST_CASE("whatever is offloaded, all memory is given back and the breakdown sums up") {
  for (const StrategyEntry& entry : data_parallel_strategies()) {
    for (const OffloadOptions& offload : choices(entry.name)) {
      for (const int pipeline : {1, 2}) {
        if (pipeline > 1 && !entry.pipeline) continue;
        for (const bool plain : {true, false}) {
          CAPTURE(entry.name);
          CAPTURE(pipeline);
          CAPTURE(plain);
          CAPTURE(static_cast<int>(offload.optimizer));
          CAPTURE(static_cast<int>(offload.parameters));
          CAPTURE(offload.activations);
          Job own = job(std::string(entry.name).c_str(), 4, pipeline, 2, 4);
          own.recipe.offload = offload;
          if (!plain) {
            own.plan.overlap_backward = false;
            own.plan.data_parallel.limit_all_gathers = false;
            own.plan.data_parallel.prefetch_layers = 2;
            own.recipe.recompute = Recompute::full;
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

TEST_CASE("activations come back in every schedule of whole passes") {
  int schedules_run = 0;
  for (const ScheduleEntry& entry : schedules()) {
    Job own = job("allreduce", 1, 4, 8, 4);
    own.plan.schedule = entry.name;
    own.plan.chunks = entry.chunks;
    const PipelineShape shape = pipeline_shape(own.recipe, own.plan);
    if (entry.unsupported(shape)) continue;
    const StageOrders orders = build_stages(entry, shape);
    const bool whole = std::all_of(orders.begin(), orders.end(), [](const auto& order) {
      return std::all_of(order.begin(), order.end(), [](const Slot& slot) {
        return !slot.paired && (slot.pass == Pass::forward || slot.pass == Pass::backward);
      });
    });
    if (!whole) continue;
    ++schedules_run;
    CAPTURE(entry.name);
    const auto plain = simulate_step(own);
    own.recipe.offload.activations = true;
    for (const int prefetch : {0, 1}) {
      own.recipe.offload.prefetch_layers = prefetch;
      const auto step = simulate_step(own);
      REQUIRE(std::holds_alternative<Trace>(step->outcome));
      for (const MemoryPeak& peak : step->trace().peaks)
        CHECK(peak.at_end == peak.resident);
      CHECK(step->trace().end >= plain->trace().end);
      CHECK(summarize(own, *step).memory.peak < summarize(own, *plain).memory.peak);
    }
  }
  CHECK(schedules_run >= 7);
}

TEST_CASE("offload folds exactly and the reference engine agrees, closed form and flows") {
  for (const char* kind : {"zero2", "zero3", "fsdp"}) {
    for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
      CAPTURE(kind);
      CAPTURE(static_cast<int>(fidelity));
      Job own = job(kind, 4, 1, 2, 2);
      own.fidelity = fidelity;
      std::get<Transformer>(own.network).layers = 3;
      own.recipe.offload = {.optimizer = OffloadTo::cpu, .activations = true};
      if (shards_parameters(kind)) own.recipe.offload.parameters = OffloadTo::cpu;
      const auto folded = simulate_step(own),
                 unfolded =
                     simulate_step(own, {.unfold = true, .run = true, .recorded_classes = {}});
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
      Job own = job("allreduce", 2, 1, 1, 2);
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

TEST_CASE("exposed copies and the host's update have categories of their own") {
  Job own = job("zero2", 2, 1, 1, 2);
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
  Job own = job("zero2", 4, 1, 1, 4);
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
