// /training/input_pipeline: its table, what the cluster says of it, and whether server, schedule
// and strategy go with it.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "sim/base/text.h"
#include "sim/plan/input/batches.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/rank_map.h"
#include "sim/recipe/stage_orders.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/schedule/schedule.h"
#include "topologies/server_board.h"

namespace trainyard::recipe {

namespace {

using json::Choice;

constexpr std::array<Choice<StorageOf>, 2> kStorages = {
    {{kStorageNames[0], StorageOf::server}, {kStorageNames[1], StorageOf::cluster}}};
constexpr std::array<Choice<bool>, 2> kCopies = {{{"in_turn", false}, {"ahead", true}}};
constexpr double kMostSampleBytes = 1e12;

}  // namespace

void visit_fields(json::Fields& f, InputPipeline& s) {
  f.field("workers", s.workers, json::required, json::between(1, kMostInputWorkers),
          "Processes of each rank that prepare micro-batches, each a whole one at a time.");
  f.field("prefetch_batches", s.prefetch, json::between(1, kMostPrefetchedBatches),
          "Micro-batches of each worker that are in work or wait.");
  f.field("sample_cpu_time", s.sample_cpu_time, json::required, json::not_negative,
          "Time of one core to decode and augment one sample.");
  f.field("sample_gpu_time", s.sample_gpu_time, json::not_negative,
          "Time of the GPU to decode and augment one sample, before the forward pass.");
  f.field("prepared_sample", s.prepared_sample, json::required, json::between(1, kMostSampleBytes),
          "One sample as it is copied to the GPU.");
  f.field("stored_sample", s.stored_sample, json::between(0, kMostSampleBytes),
          "One sample as it is read; 0: nothing is read.");
  f.field("storage_bandwidth", s.storage_bandwidth, json::positive,
          "Of the storage. Default, where samples are read: nvme_read_bandwidth of the server.");
  f.choice("storage_of", s.storage_of, kStorages, json::optional,
           "Who shares it: the ranks of each server its own, or those of the whole cluster one.");
  f.field("cached_share", s.cached_share, json::between(0, 1),
          "Share of the samples that the host's memory holds, which are not read.");
  f.choice("copies", s.copy_ahead, kCopies, json::optional,
           "To the GPU: in_turn, each when the pass before it has ended, as on PyTorch's own "
           "stream; ahead, while the GPU computes, as prefetchers on a stream of their own do.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

using recipe::InputPipeline;

namespace {

constexpr const char* kInput = "/training/input_pipeline";
// Players that a step has beside its ranks.
constexpr std::int64_t kMostWorkersOfJob = 8192;

std::string key(const char* name) {
  return fmt::format("{}/{}", kInput, name);
}

// By server: ranks of the first stage, which alone take batches.
std::vector<int> takers(const Scenario& scenario) {
  const recipe::RankGrids grids = recipe::rank_grids(scenario.plan);
  const topologies::ClusterSpec& cluster = scenario.cluster;
  std::vector<int> takers(static_cast<std::size_t>(cluster.servers));
  int rank = 0;
  for (int server = 0; server < cluster.servers; ++server) {
    for (int gpu = 0; gpu < cluster.used_on(server) && rank < grids.dense.world_size(); ++gpu) {
      const int stage = grids.dense.coordinate(static_cast<Rank>(rank++), recipe::Axis::pipeline);
      takers[static_cast<std::size_t>(server)] += stage == 0;
    }
  }
  return takers;
}

// Of servers whose ranks take batches the least; that of none if one does not say it.
template <class T>
T least(const topologies::ClusterSpec& cluster, const std::vector<int>& takers,
        T topologies::ServerSpec::*of) {
  std::optional<T> least;
  for (std::size_t server = 0; server < takers.size(); ++server) {
    if (takers[server] == 0) continue;
    const T own = cluster.server_at(static_cast<int>(server)).*of;
    least = std::min(least.value_or(own), own);
  }
  return least.value_or(cluster.server.*of);
}

void check_storage(const InputPipeline& input, Findings& findings) {
  const bool reads = input.stored_sample > Bytes(0);
  const auto means_nothing = [&](const char* name, bool said) {
    if (said)
      findings.error(key(name), "means nothing, as nothing is read",
                     "remove it, or say stored_sample");
  };
  if (!reads) {
    means_nothing("storage_of", input.storage_of.is_said());
    means_nothing("cached_share", input.cached_share.is_said());
    means_nothing("storage_bandwidth", input.storage_bandwidth.has_value());
    return;
  }
  if (input.storage_bandwidth) return;
  findings.error(key("storage_bandwidth"),
                 input.storage_of == recipe::StorageOf::cluster
                     ? "is required and missing: no file says how fast storage of a cluster is"
                     : "is required and missing: the server has no nvme_read_bandwidth",
                 "state it, or leave stored_sample out for samples that need not be read");
}

// What is prepared ahead, by server.
void check_host_memory(const Scenario& scenario, const InputPipeline& input, Findings& findings) {
  const std::vector<int> by_server = takers(scenario);
  for (std::size_t server = 0; server < by_server.size(); ++server) {
    const Bytes memory = scenario.cluster.server_at(static_cast<int>(server)).host_memory;
    const auto held = static_cast<double>(scenario.recipe.micro_batch.size) * input.prefetch *
                      input.workers * by_server[server] *
                      static_cast<double>(input.prepared_sample.count());
    if (memory == Bytes(0) || held <= static_cast<double>(memory.count())) continue;
    findings.error(
        key("prefetch_batches"),
        fmt::format("{} batches ahead of {} ranks of a server are {:.3g} GB, its memory is {}",
                    input.workers * input.prefetch.value(), by_server[server], held / 1e9,
                    to_text(memory)),
        "lower it, workers, or micro_batch");
    return;
  }
}

void check_host(const Scenario& scenario, Findings& findings) {
  require_of_hosts(scenario.cluster, "pcie_bandwidth", states_pcie_bandwidth, "batches cross PCIe",
                   findings);
  require_of_hosts(scenario.cluster, "memory_bandwidth", states_memory_bandwidth,
                   "batches are in the host's memory", findings);
}

// Whether both passes go through the micro-batches in order.
bool in_order(const schedule::StageOrders& orders) {
  for (const std::vector<schedule::Slot>& order : orders) {
    int forward = -1, backward = -1;
    for (const schedule::Slot& slot : order) {
      if (slot.pass != schedule::Pass::forward && !ends_backward(slot.pass)) continue;
      int& last = slot.pass == schedule::Pass::forward ? forward : backward;
      if (slot.microbatch <= last) return false;
      last = slot.microbatch;
    }
  }
  return true;
}

// Steps follow each other here, and not every way to train is described over several.
void check_steps(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelPlan& plan = scenario.plan;
  const plan::DataParallelStrategy strategy = plan::strategy_of(plan, scenario.recipe);
  if (strategy.own_steps > 1)
    findings.error(kInput, "ranks that do not wait for each other have no input pipeline",
                   "remove it, or wait for all ranks");
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(plan.pipeline.schedule);
  if (schedule != nullptr && schedule->updates != schedule::Updates::after_all)
    findings.error(kInput,
                   fmt::format("the schedule {} updates weights while micro-batches are under way",
                               plan.pipeline.schedule),
                   "use one that updates them after all, such as 1f1b");
  const std::int64_t microbatches = microbatches_per_step(scenario);
  if (microbatches == 0 || findings.has_errors()) return;
  const schedule::PipelineShape shape = plan::pipeline_shape(scenario.recipe, plan);
  if (parts(shape) > 1)
    findings.error(kInput, "is described for stages that hold one part of the network",
                   "set chunks_per_stage to 1, or use another schedule");
  else if (!in_order(*stage_orders(plan, shape)))
    findings.error(kInput, "batches are taken in their order, which the schedule does not keep",
                   "let every pass go through the micro-batches in order");
  if (scenario.recipe.forward_only && plan.degrees.pipeline > 1)
    findings.error(kInput, "a pipeline of forward passes has no end of a step to wait for",
                   "remove it, or set pp to 1");
}

void check_work(const Scenario& scenario, const InputPipeline& input, Findings& findings) {
  const std::int64_t takers = scenario.plan.degrees.world_size() / scenario.plan.degrees.pipeline;
  if (takers * input.workers > kMostWorkersOfJob)
    findings.error(key("workers"),
                   fmt::format("{} for each of {} ranks are more than {} that are simulated",
                               input.workers, takers, kMostWorkersOfJob),
                   "simulate fewer servers; those of a server share its cores and drives alone");
}

}  // namespace

void assemble_input(Scenario& scenario, Findings& findings) {
  if (!scenario.recipe.input || findings.has_errors()) return;
  InputPipeline& input = *scenario.recipe.input;
  const std::vector<int> by_server = takers(scenario);
  input.ranks_of_server = std::max(1, *std::max_element(by_server.begin(), by_server.end()));
  const bool own = input.storage_of == recipe::StorageOf::server;
  input.ranks_of_storage =
      own ? input.ranks_of_server : std::accumulate(by_server.begin(), by_server.end(), 0);
  input.cores = least(scenario.cluster, by_server, &topologies::ServerSpec::host_cores);
  const BytesPerSecond drives =
      least(scenario.cluster, by_server, &topologies::ServerSpec::nvme_read_bandwidth);
  const bool has_drives = drives.count() > 0;
  if (!input.storage_bandwidth && input.stored_sample > Bytes(0) && own && has_drives)
    input.storage_bandwidth = drives;
}

void validate_input(const Scenario& scenario, Findings& findings) {
  if (!scenario.recipe.input || findings.has_errors()) return;
  const InputPipeline& input = *scenario.recipe.input;
  check_host(scenario, findings);
  check_storage(input, findings);
  check_host_memory(scenario, input, findings);
  check_steps(scenario, findings);
  check_work(scenario, input, findings);
}

}  // namespace trainyard::scenario
