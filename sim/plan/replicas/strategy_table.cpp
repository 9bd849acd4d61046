#include <algorithm>
#include <array>

#include "sim/base/check.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_plan.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {
namespace {

using Names = std::string_view;
constexpr std::array<Names, 6> kReplicated = {"reduce_every_microbatch",
                                              "first_bucket_size",
                                              "gradient_as_bucket_view",
                                              "compression",
                                              "cycle_time",
                                              "response_cache"};
constexpr std::array<Names, 5> kZero1 = {"reduce_every_microbatch", "gradient_as_bucket_view",
                                         "all_reduce_gradients", "overlap_param_gather",
                                         "allgather_bucket_size"};
constexpr std::array<Names, 3> kZero2 = {"reduce_every_microbatch", "overlap_param_gather",
                                         "allgather_bucket_size"};
constexpr std::array<Names, 3> kZero3 = {"reduce_every_microbatch", "prefetch_layers",
                                         "limit_all_gathers"};
constexpr std::array<Names, 5> kFsdp = {"reduce_every_microbatch", "prefetch_layers",
                                        "limit_all_gathers", "reshard_after_forward",
                                        "reduce_dtype"};
constexpr std::array<Names, 6> kHsdp = {
    "reduce_every_microbatch", "prefetch_layers", "limit_all_gathers",
    "reshard_after_forward",   "reduce_dtype",    "shard_size"};
constexpr std::array<Names, 2> kMegatron = {"overlap_param_gather", "allgather_bucket_size"};
constexpr std::array<Names, 1> kLocal = {"steps_between"};
constexpr std::array<Names, 9> kServer = {"device",         "server",        "shards",
                                          "sharding",       "updates",       "staleness",
                                          "backup_workers", "push_by_layer", "summed_ranks"};

constexpr std::array<Names, 2> kOneProcess = {"loss_in_model", "lock_share"};

constexpr std::array<StrategyEntry, 10> kStrategies = {{
    {"allreduce", "replicas all-reduce gradients in buckets (DDP)", allreduce, kReplicated, true},
    {"zero1", "optimizer states are sharded", zero1, kZero1},
    {"zero2", "gradients too", zero2, kZero2, false, "DeepSpeed"},
    {"zero3", "parameters too", zero3, kZero3, false, "DeepSpeed"},
    {"fsdp", "PyTorch's fully sharded data parallelism", fsdp, kFsdp, false, {}, true},
    {"hsdp", "fsdp in groups of shard_size, replicas across", hsdp, kHsdp, false, {}, true},
    {"distributed_optimizer", "Megatron-LM's sharded optimizer", distributed_optimizer, kMegatron},
    {"local_sgd", "replicas meet every steps_between steps (DiLoCo)", local_sgd, kLocal},
    {"nn_data_parallel", "one process: GPU 0 copies its parameters to all and updates them",
     nn_data_parallel, kOneProcess, true},
    {"parameter_server", "servers, or a shard on each GPU, sum gradients and update",
     parameter_server, kServer, true},
}};

}  // namespace

std::span<const StrategyEntry> data_parallel_strategies() {
  return kStrategies;
}

const StrategyEntry* find_strategy(std::string_view name) {
  const auto* found = std::find_if(kStrategies.begin(), kStrategies.end(),
                                   [&](const StrategyEntry& entry) { return entry.name == name; });
  return found == kStrategies.end() ? nullptr : found;
}

std::optional<std::string> unsupported(const DataParallelStrategy& strategy,
                                       const schedule::PipelineShape& shape,
                                       const schedule::StageOrders& orders) {
  if (directions(shape) > 1 && strategy.gradient_shards > 1)
    return "it holds two copies of the network, whose gradients meet when both are complete, so "
           "that none can be dropped before";
  if (directions(shape) > 1 && strategy.gathering == Gathering::first_forward)
    return "stages that share parameters begin with different ones of them, and can gather them "
           "in one order only before (overlap_param_gather: false)";
  if (directions(shape) > 1 && strategy.trains_apart)
    return "it holds two copies of the network, which cannot train apart";
  if (directions(shape) > 1 && strategy.updates_elsewhere)
    return "it holds two copies of the network, whose gradients are complete at different times";
  // A pair neither hands inputs out nor brings outputs back.
  const bool leads = strategy.has_leader();
  const bool holds_all = strategy.gradient_shards == 1 && strategy.parameter_shards == 1;
  if (holds_all && !leads && strategy.gathering != Gathering::first_forward) return std::nullopt;
  for (const std::vector<schedule::Slot>& order : orders) {
    // Parameters that a part's first forward gathers are there for all others.
    std::vector<bool> gathered(static_cast<std::size_t>(parts(shape)));
    for (const schedule::Slot& slot : order) {
      const auto at = static_cast<std::size_t>(part(shape, slot));
      if (slot.paired && (leads || !holds_all || !gathered[at]))
        return "it alternates layers of a forward and a backward pass, which would need gathers "
               "and reductions of both at once";
      if (slot.pass == schedule::Pass::forward) gathered[at] = true;
    }
  }
  return std::nullopt;
}

DataParallelStrategy strategy_of(const recipe::ParallelPlan& plan,
                                 const recipe::TrainingRecipe& recipe) {
  // Two copies of the network are replicas of each other.
  const int ranks = plan.degrees.replicas() * directions(pipeline_shape(recipe, plan));
  if (ranks == 1) {
    // Routed experts may still have replicas.
    recipe::DataParallelOptions experts;
    experts.compression = plan.data_parallel.compression;
    return allreduce(experts, recipe, 1);
  }
  const StrategyEntry* entry = find_strategy(plan.data_parallel.kind);
  TRAINYARD_CHECK(entry != nullptr, "unknown strategy {}", plan.data_parallel.kind);
  return entry->build(plan.data_parallel, recipe, ranks);
}

}  // namespace trainyard::plan
