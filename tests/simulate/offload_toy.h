// Jobs with something offloaded, whose every transfer to and from the host takes a known time.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "sim/plan/replicas/data_parallel.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"

namespace toy {

// Kernels and collectives take a nanosecond a byte; so does every transfer to and from the host
// unless a test says otherwise.
inline constexpr int kLayers = 6;
inline constexpr std::int64_t kParameters = 1000, kActivations = 700;

inline NetworkWork offload_network(const toy::Times& times, int layers = kLayers) {
  NetworkWork work = toy::network(layers, times);
  work.kinds[0].parameters = kParameters;
  work.kinds[0].kept = {};
  work.kinds[0].kept.add(Module::features, Bytes(kActivations));
  return work;
}

struct OffloadSetup {
  TrainingRecipe recipe;
  ParallelPlan plan;
  ClusterSpec cluster;

  explicit OffloadSetup(const char* kind, int ranks, int microbatches = 1) {
    recipe.global_batch = std::int64_t{ranks} * microbatches;
    plan.degrees.data = ranks;
    plan.data_parallel.kind = kind;
    plan.data_parallel.bucket_size = plan.data_parallel.first_bucket_size =
        Bytes(2 * kParameters);  // a layer
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

inline std::unique_ptr<toy::Result> simulated(const OffloadSetup& setup, const NetworkWork& work) {
  auto result = std::make_unique<toy::Result>();
  result->plan = plan_step(work, setup.recipe, setup.plan);
  result->lowered = lower_in_order(result->plan.cast, setup.cluster, nullptr, toy::Compute(),
                                   toy::Messages(0), {});
  result->outcome = run(result->lowered.machine, {.record = Record::kernels});
  return result;
}

inline std::int64_t nanoseconds(const toy::Result& result) {
  return result.end().count() / 1000;
}

// Bytes that a rank of the first stage moves on a port in one step.
inline std::int64_t moved(const StepPlan& plan, std::string_view connection) {
  const Program& program = plan.cast.roles[0].program;
  std::int64_t bytes = 0;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      if (op.kind == OpKind::collective && plan.cast.connection(op).name == connection)
        bytes += plan.cast.transfer(op).bytes.count();
  return bytes;
}

inline const MemoryPeak& peak(const toy::Result& result) {
  return std::get<Trace>(result.outcome).peaks[ActorId(0)];
}

// The most bytes of a kind beside the resident ones.
inline std::int64_t most(const toy::Result& result, MemoryKind kind) {
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

inline Job offload_job(const char* kind, int data, int pipeline, int microbatches,
                       int gpus_per_server) {
  Transformer network = gpt(8, 512, 8, 8192);
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
  result.recipe.micro_batch.sequence_length = 256;
  result.recipe.offload.tile_parameters = 1 << 20;
  result.plan.degrees = {.data = data, .pipeline = pipeline};
  result.plan.data_parallel.bucket_size = Bytes(1 << 20);
  result.plan.data_parallel.kind = kind;
  result.plan.data_parallel.shard_size = data / 2;
  return result;
}

inline bool shards_parameters(std::string_view kind) {
  return kind == "zero3" || kind == "fsdp" || kind == "hsdp";
}

// All that a kind of data parallelism can offload.
inline std::vector<OffloadOptions> choices(std::string_view kind) {
  const OffloadTo cpu = OffloadTo::cpu, nvme = OffloadTo::nvme;
  std::vector<OffloadOptions> all = {{.activations = true},
                                     {.activations = true, .fraction = 0.5, .prefetch_layers = 0}};
  if (kind == "local_sgd") return all;
  if (kind == "parameter_server") return {};
  const bool layer_units = kind == "fsdp" || kind == "hsdp";
  for (const bool activations : {false, true}) {
    if (!layer_units) all.push_back({.optimizer = cpu, .activations = activations});
    if (!layer_units) all.push_back({.optimizer = nvme, .activations = activations});
    if (!shards_parameters(kind)) continue;
    all.push_back({.optimizer = cpu, .parameters = cpu, .activations = activations});
    if (!layer_units) all.push_back({.optimizer = nvme, .parameters = nvme});
  }
  return all;
}

}  // namespace toy
