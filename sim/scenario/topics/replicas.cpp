// /parallelism/data_parallel: its tables, and its options against its kind, the degrees and the
// number formats.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "models/layer/peak.h"
#include "models/transformer/networks.h"
#include "sim/base/check.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/stage_orders.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/word_lists.h"
#include "sim/schedule/chunk_placement.h"
#include "topologies/server_board.h"

namespace trainyard::recipe {

using models::Dtype;

namespace {

// Names of an enum's members in their order.
template <class E, std::size_t Size>
std::array<json::Choice<E>, Size> choices(const std::array<std::string_view, Size>& names) {
  std::array<json::Choice<E>, Size> choices{};
  for (std::size_t i = 0; i < Size; ++i)
    choices[i] = {names[i], static_cast<E>(i)};
  return choices;
}

}  // namespace

void visit_fields(json::Fields& f, GradientCompression& s) {
  f.choice("kind", s.kind, choices<CompressionKind>(kCompressionNames), json::optional,
           "How gradients are made smaller for the exchange: a cast (fp16, bf16), 8 bits (int8, "
           "fp8), their signs (one_bit), the largest (top_k), factors of low rank (power_sgd).");
  f.field("rank", s.rank, json::between(1, 1024), "power_sgd: rank of the factors.");
  f.field("density", s.density, json::Bounds{0, 1, true},
          "top_k: part of the gradients that is sent.");
}

namespace {

void visit_batch_split(json::Fields& f, DataParallelOptions& s) {
  constexpr std::array<std::string_view, 2> kSplits = {"equal", "by_speed"};
  std::string split(kSplits[s.batch_split == BatchSplit::by_speed ? 1 : 0]);
  f.numbers_or_name(
      {"batch_split", json::optional, json::between(1, scenario::kMostBatch),
       "Micro-batch of each replica, of which micro_batch is the mean; or how to find "
       "them: equal, or in proportion to the speed of its GPUs."},
      kSplits, split, s.batches);
  s.batch_split = !s.batches.empty()    ? BatchSplit::list
                  : split == kSplits[1] ? BatchSplit::by_speed
                                        : BatchSplit::equal;
}

void visit_servers(json::Fields& f, ParameterServers& servers) {
  f.choice("device", servers.device, choices<ServerDevice>(kServerDeviceNames), json::optional,
           "parameter_server: where shards are: with the processors of servers, or on the ranks' "
           "own GPUs (gpu), which sum and update an even part each.");
  f.list("server", servers.servers, json::optional, json::between(0, 1 << 20),
         "parameter_server: servers of the cluster on whose processors the shards run, in turn. "
         "Default: the first.",
         true);
  f.field("shards", servers.shards, json::between(1, kMostShards),
          "parameter_server: parts of the parameters, each with a program of its own. Default: one "
          "on each server.");
  f.choice(
      "sharding", servers.sharding, choices<Sharding>(kShardingNames), json::optional,
      "parameter_server: what a shard keeps: an even part of every layer, or whole layers, the "
      "largest first where least is (size), in turn (round_robin) or by their names (hash).");
  f.choice("updates", servers.updates, choices<ServerUpdates>(kServerUpdateNames), json::optional,
           "parameter_server: when gradients update: with those of all ranks, as they come, or as "
           "they come from ranks that are at most staleness steps apart (stale).");
  f.field("staleness", servers.staleness, json::between(0, 32),
          "parameter_server, stale: steps that a rank may be ahead of the slowest.");
  f.field("backup_workers", servers.backup_workers, json::between(0, 1 << 20),
          "parameter_server, synchronous: of all ranks the last so many to push in a step are not "
          "waited for, and their gradients are dropped.");
  f.field("summed_ranks", servers.summed_ranks, json::between(1, 1 << 20),
          "parameter_server, synchronous: so many neighbouring ranks, as the GPUs of a server, sum "
          "their gradients first, and each pushes and pulls its part of the sum.");
  f.field("push_by_layer", servers.push_by_layer, json::anything,
          "parameter_server: a layer's gradients leave when its backward pass is done, and its "
          "parameters come back while others are under way.");
}

}  // namespace

void visit_fields(json::Fields& f, DataParallelOptions& s) {
  std::vector<std::string_view> names;
  for (const plan::StrategyEntry& entry : plan::data_parallel_strategies())
    names.push_back(entry.name);
  f.name("kind", s.kind, names, json::optional,
         "What replicas divide and how they exchange gradients.");
  f.field("bucket_size", s.bucket_size, json::optional, json::positive,
          "Gradients reduced together, in whole tensors.");
  visit_batch_split(f, s);
  f.field("first_bucket_size", s.first_bucket_size, json::optional, json::positive,
          "allreduce: the first bucket, small so that communication starts early.");
  f.field("overlap_backward", s.overlap_backward, json::optional,
          "Buckets are reduced while the backward pass goes on.");
  f.field("reduce_every_microbatch", s.reduce_every_microbatch, json::anything,
          "Gradients are reduced after every micro-batch, not only the last. Default: true for "
          "zero2 and zero3, and without a pipeline for fsdp and hsdp.");
  f.field("shard_size", s.shard_size, json::between(2, 1 << 20),
          "hsdp: neighbouring ranks that share one copy.");
  f.field("prefetch_layers", s.prefetch_layers, json::between(0, kMostPrefetchLayers),
          "zero3, fsdp, hsdp: layers gathered ahead of the one that computes.");
  f.field("limit_all_gathers", s.limit_all_gathers, json::anything,
          "zero3, fsdp, hsdp: false lets gathers run ahead of the computation without a limit.");
  f.field("reshard_after_forward", s.reshard_after_forward, json::anything,
          "fsdp, hsdp: false keeps layers gathered from forward to backward. Default: true without "
          "a pipeline.");
  f.choice("reduce_dtype", s.reduce_dtype, scenario::kGradientDtypes,
           "fsdp, hsdp: type in which gradients are reduced. Default: precision/gradients.");
  f.field("gradient_as_bucket_view", s.gradient_as_bucket_view, json::anything,
          "allreduce, zero1: false holds buckets beside the gradients, as PyTorch DDP does unless "
          "it is told otherwise.");
  f.field("cycle_time", s.cycle_time, json::between(0, 1e12),
          "allreduce: how often a thread of each rank looks for gradients, as Horovod's does; what "
          "all ranks have is reduced together, up to bucket_size. 0: in buckets.");
  f.field("response_cache", s.response_cache, json::anything,
          "allreduce with a cycle_time: ranks agree by a bit for each gradient; false: through the "
          "first rank, which hears of all.");
  f.field("overlap_param_gather", s.overlap_param_gather, json::anything,
          "zero1, zero2, distributed_optimizer: updated parameters are gathered under the next "
          "forward pass. Default: true for distributed_optimizer.");
  f.field("allgather_bucket_size", s.allgather_bucket_size, json::positive,
          "zero1, zero2, distributed_optimizer: updated parameters gathered together, where they "
          "are not gathered under the next forward pass. Default: bucket_size.");
  f.field("all_reduce_gradients", s.all_reduce_gradients, json::anything,
          "zero1: whole gradients are all-reduced, as DeepSpeed once did.");
  f.field(
      "loss_in_model", s.loss_in_model, json::anything,
      "nn_data_parallel: the network returns its loss, which alone is gathered on the first GPU; "
      "else it gathers the outputs and computes the loss of all.");
  f.field("lock_share", s.lock_share, json::between(0, 1),
          "nn_data_parallel: part of the host's time for a launch during which a thread has the "
          "interpreter's lock.");
  f.field("steps_between", s.steps_between, json::between(1, 1e6),
          "local_sgd: steps from one meeting of the replicas to the next; a simulated step carries "
          "that part of it.");
  visit_servers(f, s.parameter_servers);
  f.section("compression", s.compression, json::optional,
            "allreduce: gradients are compressed, bucket by bucket.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

using plan::StrategyEntry;
using recipe::CompressionKind;

namespace {

constexpr const char* kReplicas = "/parallelism/data_parallel";

bool accepts(const StrategyEntry& strategy, std::string_view option) {
  return std::find(strategy.accepts.begin(), strategy.accepts.end(), option) !=
         strategy.accepts.end();
}

std::string kinds_that_accept(std::string_view option) {
  std::string kinds;
  for (const StrategyEntry& entry : plan::data_parallel_strategies()) {
    if (!accepts(entry, option)) continue;
    kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", entry.name);
  }
  return kinds;
}

// An option that this kind would silently ignore; a value that asks for nothing is none.
void check_options(const StrategyEntry& strategy, const recipe::DataParallelOptions& options,
                   Findings& findings) {
  const recipe::ParameterServers& servers = options.parameter_servers;
  const std::array<std::pair<std::string_view, bool>, 26> given = {
      {{"reduce_every_microbatch", options.reduce_every_microbatch.has_value()},
       {"shard_size", options.shard_size.is_said()},
       {"loss_in_model", options.loss_in_model.is_said() && options.loss_in_model},
       {"lock_share", options.lock_share.is_said()},
       {"steps_between", options.steps_between.is_said()},
       {"prefetch_layers", options.prefetch_layers.is_said() && options.prefetch_layers != 0},
       {"limit_all_gathers", options.limit_all_gathers.is_said()},
       {"reshard_after_forward", options.reshard_after_forward.is_said()},
       {"reduce_dtype", options.reduce_dtype.has_value()},
       {"first_bucket_size",
        options.first_bucket_size != recipe::DataParallelOptions().first_bucket_size},
       {"gradient_as_bucket_view", !options.gradient_as_bucket_view},
       {"cycle_time", options.cycle_time.value() > Duration(0)},
       {"response_cache", options.response_cache.is_said() && !options.response_cache},
       {"overlap_param_gather", options.overlap_param_gather.value_or(false)},
       {"allgather_bucket_size", options.allgather_bucket_size.has_value()},
       {"device", servers.device != recipe::ServerDevice::cpu},
       {"server", !servers.servers.empty()},
       {"shards", servers.shards.is_said()},
       {"sharding", servers.sharding != recipe::Sharding::even},
       {"updates", servers.updates != recipe::ServerUpdates::synchronous},
       {"staleness", servers.staleness.is_said()},
       {"backup_workers", servers.backup_workers.is_said() && servers.backup_workers != 0},
       {"summed_ranks", servers.summed_ranks != 1},
       {"push_by_layer", servers.push_by_layer.is_said() && servers.push_by_layer},
       {"compression", options.compression.used()},
       {"all_reduce_gradients", options.all_reduce_gradients}}};
  for (const auto& [option, is_given] : given) {
    if (is_given && !accepts(strategy, option))
      findings.error(fmt::format("{}/{}", kReplicas, option),
                     fmt::format("means nothing to {}", strategy.name),
                     "it is for " + kinds_that_accept(option));
  }
}

// Keys of buckets of a kind that has none: layers are its units, or it exchanges no gradients in
// the backward pass. They are often left of a base that reduces in buckets, so that this is no
// error.
void check_buckets(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelPlan& plan = scenario.plan;
  const plan::DataParallelStrategy strategy = plan::strategy_of(plan, scenario.recipe);
  const bool exchanges =
      !strategy.trains_apart && !strategy.updates_elsewhere && !strategy.has_leader();
  const auto check = [&](std::string_view key, bool is_used) {
    const std::string pointer = fmt::format("{}/{}", kReplicas, key);
    if (!is_used && json::find(scenario.document, pointer) != nullptr)
      findings.warning(pointer, fmt::format("means nothing to {}", plan.data_parallel.kind),
                       "remove it");
  };
  check("bucket_size", exchanges && !strategy.layer_units);
  check("first_bucket_size", exchanges && !strategy.layer_units);
  check("overlap_backward", exchanges);
  if (plan.data_parallel.allgather_bucket_size &&
      strategy.gathering == plan::Gathering::first_forward)
    findings.error(fmt::format("{}/allgather_bucket_size", kReplicas),
                   "updated parameters are gathered under the next forward pass, layer by layer",
                   "set overlap_param_gather to false or remove it");
}

// Such buckets need copies there and back, and those back would be due after every pass.
void check_bucket_copies(const recipe::DataParallelOptions& options, Findings& findings) {
  if (!options.gradient_as_bucket_view && options.reduce_every_microbatch.value_or(false))
    findings.error(fmt::format("{}/gradient_as_bucket_view", kReplicas),
                   "buckets that are copied back after every micro-batch are not described",
                   "remove it or reduce_every_microbatch");
}

// Gradients that leave in cycles, which are found from the times of one stage's layers.
void check_cycles(const Scenario& scenario, Findings& findings) {
  const recipe::DataParallelOptions& options = scenario.plan.data_parallel;
  const auto refuse = [&](bool is_wrong, std::string_view what, std::string_view cure) {
    if (is_wrong)
      findings.error(fmt::format("{}/cycle_time", kReplicas), std::string(what), std::string(cure));
  };
  if (options.cycle_time.value() == Duration(0)) {
    if (options.response_cache.is_said() && !options.response_cache)
      findings.error(fmt::format("{}/response_cache", kReplicas),
                     "ranks agree on buckets of fixed sizes once and for all",
                     "set cycle_time, or remove it");
    return;
  }
  const auto* transformer = scenario.network.find<models::Transformer>();
  refuse(scenario.plan.degrees.pipeline > 1, "cycles are described for a network on one stage",
         "set pp to 1, or cycle_time to \"0s\"");
  refuse(transformer != nullptr && transformer->moe.experts > 0,
         "cycles of routed experts are not described", "set it to \"0s\"");
  refuse(options.compression.used(), "compressed gradients in cycles are not described",
         "remove compression, or set it to \"0s\"");
  refuse(!options.overlap_backward,
         "the thread that looks for gradients runs beside the backward pass",
         "set overlap_backward to true, or this to \"0s\"");
  refuse(options.batch_split != recipe::BatchSplit::equal,
         "cycles are described for replicas with equal micro-batches",
         "set batch_split to equal, or this to \"0s\"");
  refuse(scenario.recipe.offload.any(), "cycles of gradients that leave the GPU are not described",
         "remove offload, or set it to \"0s\"");
}

void check_compression(const Scenario& scenario, const recipe::GradientCompression& compression,
                       Findings& findings) {
  const std::string pointer = fmt::format("{}/compression", kReplicas);
  const CompressionKind kind = compression.kind;
  if (compression.rank.is_said() && kind != CompressionKind::power_sgd)
    findings.error(pointer + "/rank", "only power_sgd makes factors of a rank", "remove it");
  if (compression.density.is_said() && kind != CompressionKind::top_k)
    findings.error(pointer + "/density", "only top_k sends a part of the gradients", "remove it");
  const models::Dtype gradients = scenario.recipe.precision.gradients;
  const std::vector<topologies::GpuKind> kinds = gpu_kinds_in_use(scenario.cluster);
  const bool all_multiply = std::all_of(kinds.begin(), kinds.end(), [&](const auto& one) {
    return models::find_unit(*one.gpu, gradients).has_value();
  });
  if (kind == CompressionKind::power_sgd && !all_multiply)
    findings.error(pointer + "/kind",
                   fmt::format("factors are multiplied in {}, for which the GPU has no units",
                               name(gradients)),
                   "state its peak, or gradients in a format that it has");
  if ((kind == CompressionKind::fp16 || kind == CompressionKind::bf16) &&
      size_of(gradients) <= size_of(models::Dtype::fp16))
    findings.error(pointer + "/kind",
                   fmt::format("gradients are {} already, no larger than {}", name(gradients),
                               recipe::kCompressionNames[static_cast<std::size_t>(kind)]),
                   "set precision/gradients to fp32, or remove it");
}

void check_shard_size(const recipe::ParallelDegrees& degrees,
                      const recipe::DataParallelOptions& options, Findings& findings) {
  const std::string pointer = fmt::format("{}/shard_size", kReplicas);
  if (!options.shard_size.is_said()) {
    findings.error(pointer, "is required and missing for hsdp", "usually the GPUs of a server");
    return;
  }
  if (degrees.replicas() % options.shard_size != 0)
    findings.error(pointer, fmt::format("dp x cp = {} is not divisible into shards of {} ranks",
                                        degrees.replicas(), options.shard_size));
  else if (degrees.replicas() == options.shard_size)
    findings.error(pointer,
                   fmt::format("dp x cp is {} too: there is one replica", degrees.replicas()),
                   "use kind fsdp, or a smaller shard_size");
}

// Routed experts have replicas of their own, as many in each group that shares one copy.
void check_experts(const Scenario& scenario, Findings& findings) {
  const auto* transformer = scenario.network.find<models::Transformer>();
  if (transformer == nullptr || transformer->moe.experts == 0) return;
  const plan::DataParallelStrategy strategy = plan::strategy_of(scenario.plan, scenario.recipe);
  const int replicas = scenario.plan.expert_replicas();
  if (replicas % strategy.replicas == 0) return;
  findings.error(
      fmt::format("{}/shard_size", kReplicas),
      fmt::format("each routed expert is on {} ranks of a stage, which are not divisible "
                  "among {} groups that hold a copy of all",
                  replicas, strategy.replicas),
      "raise shard_size, or lower ep");
}

// Requires: a scenario without errors so far, so that its schedule can be built.
void check_update_order(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelPlan& plan = scenario.plan;
  const plan::DataParallelStrategy strategy = plan::strategy_of(plan, scenario.recipe);
  const bool any_order = strategy.optimizer_shards == 1 && !strategy.trains_apart;
  const bool is_apart = strategy.updates_elsewhere || strategy.has_leader();
  if (!is_apart && any_order) return;
  // Without stages micro-batches follow each other under every schedule.
  const bool in_turn = !is_apart && plan.degrees.pipeline == 1;
  const schedule::ScheduleEntry* entry = schedule::find_schedule(plan.pipeline.schedule);
  if (!in_turn && entry != nullptr && entry->updates != schedule::Updates::after_all) {
    findings.error(fmt::format("{}/kind", kReplicas),
                   fmt::format("{} does not work with the schedule {}: it updates weights while "
                               "micro-batches are under way",
                               plan.data_parallel.kind, plan.pipeline.schedule),
                   "allreduce does");
    return;
  }
  const schedule::PipelineShape shape = plan::pipeline_shape(scenario.recipe, plan);
  const auto orders = stage_orders(plan, shape);
  if (const std::optional<std::string> why = unsupported(strategy, shape, *orders))
    findings.error(fmt::format("{}/kind", kReplicas),
                   fmt::format("{} does not work with the schedule {}{}: {}",
                               plan.data_parallel.kind, plan.pipeline.schedule,
                               plan.pipeline.overlap_passes ? " and overlap_passes" : "", *why),
                   "allreduce and zero1 do");
}

}  // namespace

// Gathered layers stay where a pipeline would gather them again for every micro-batch, as
// torchtitan's default is (parallelism.fsdp_reshard_after_forward), and PyTorch's pipelines reduce
// gradients in the backward pass of the last one. Source: torch/distributed/pipelining/stage.py
// (backward_maybe_with_nosync: set_requires_gradient_sync and set_is_last_backward).
recipe::DataParallelOptions assemble_data_parallel(recipe::DataParallelOptions options,
                                                   bool pipeline) {
  options.reshard_after_forward.otherwise(!pipeline);
  recipe::ParameterServers& servers = options.parameter_servers;
  servers.shards.otherwise(
      std::clamp(static_cast<int>(servers.servers.size()), 1, recipe::kMostShards));
  const StrategyEntry* strategy = plan::find_strategy(options.kind);
  if (pipeline && strategy != nullptr && strategy->once_with_pipeline &&
      !options.reduce_every_microbatch)
    options.reduce_every_microbatch = false;
  return options;
}

void validate_data_parallel(const Scenario& scenario, Findings& findings) {
  const recipe::DataParallelOptions& options = scenario.plan.data_parallel;
  const StrategyEntry* strategy = plan::find_strategy(options.kind);
  TRAINYARD_CHECK(strategy != nullptr, "the reader knows the names: {}", options.kind);
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  check_options(*strategy, options, findings);
  check_bucket_copies(options, findings);
  check_cycles(scenario, findings);
  check_compression(scenario, options.compression, findings);
  if (accepts(*strategy, "shard_size")) check_shard_size(degrees, options, findings);
  // What a strategy is depends on its shards.
  if (!accepts(*strategy, "shard_size") || options.shard_size.is_said())
    validate_batch_split(scenario, findings);
  if (accepts(*strategy, "server")) validate_parameter_server(scenario, findings);
  if (accepts(*strategy, "lock_share")) validate_one_process(scenario, findings);
  if (findings.has_errors()) return;
  check_buckets(scenario, findings);
  check_experts(scenario, findings);
  check_update_order(scenario, findings);
  if (accepts(*strategy, "steps_between"))
    findings.warning(fmt::format("{}/kind", kReplicas),
                     fmt::format("the step carries 1/{} of a meeting of the replicas: it is an "
                                 "average over the steps between two",
                                 options.steps_between));
  if (degrees.pipeline > 1 && !strategy->refused_with_pipeline.empty())
    findings.warning(fmt::format("{}/kind", kReplicas),
                     fmt::format("{} refuses {} with a pipeline, as it moves the whole "
                                 "network in every micro-batch; this is what it would take",
                                 strategy->refused_with_pipeline, strategy->name),
                     "PyTorch combines fsdp with pipelines");
  if ((!strategy->only_exchanges || options.compression.used()) &&
      degrees.replicas() *
              schedule::directions(plan::pipeline_shape(scenario.recipe, scenario.plan)) ==
          1)
    findings.warning(fmt::format("{}/kind", kReplicas),
                     fmt::format("dp is 1, so {} has nothing to {}", strategy->name,
                                 strategy->only_exchanges ? "exchange" : "divide"));
}

}  // namespace trainyard::scenario
