// Options of data parallelism against its kind, the degrees and the number formats. Bad input 65.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "sim/base/check.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/custom_schedule.h"

namespace trainyard::scenario {

using plan::StrategyEntry;
using recipe::CompressionKind;

namespace {

constexpr const char* kSection = "/parallelism/data_parallel";

std::string kinds_that_accept(std::string_view option) {
  std::string kinds;
  for (const StrategyEntry& entry : plan::data_parallel_strategies()) {
    if (std::find(entry.accepts.begin(), entry.accepts.end(), option) == entry.accepts.end())
      continue;
    kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", entry.name);
  }
  return kinds;
}

// An option that this kind would silently ignore; a value that asks for nothing is none.
void check_options(const StrategyEntry& strategy, const DataParallelSection& section,
                   Findings& findings) {
  const std::array<std::pair<std::string_view, bool>, 11> given = {
      {{"reduce_every_microbatch", section.reduce_every_microbatch.has_value()},
       {"shard_size", section.shard_size.has_value()},
       {"steps_between", section.steps_between.has_value()},
       {"prefetch_layers", section.prefetch_layers.value_or(0) != 0},
       {"limit_all_gathers", section.limit_all_gathers.has_value()},
       {"reshard_after_forward", section.reshard_after_forward.has_value()},
       {"reduce_dtype", section.reduce_dtype.has_value()},
       {"gradient_as_bucket_view", !section.gradient_as_bucket_view.value_or(true)},
       {"overlap_param_gather", section.overlap_param_gather.value_or(false)},
       {"compression", section.compression.kind != "none"},
       {"all_reduce_gradients", section.all_reduce_gradients.value_or(false)}}};
  for (const auto& [option, is_given] : given) {
    const bool accepted = std::find(strategy.accepts.begin(), strategy.accepts.end(), option) !=
                          strategy.accepts.end();
    if (is_given && !accepted)
      findings.error(fmt::format("{}/{}", kSection, option),
                     fmt::format("means nothing to {}", strategy.name),
                     "it is for " + kinds_that_accept(option));
  }
}

// Of the two kinds of copies that such buckets need, those back would be due after every pass.
void check_bucket_copies(const Scenario& scenario, const DataParallelSection& section,
                         Findings& findings) {
  if (section.gradient_as_bucket_view.value_or(true)) return;
  const std::string pointer = fmt::format("{}/gradient_as_bucket_view", kSection);
  if (section.reduce_every_microbatch.value_or(false))
    findings.error(pointer,
                   "buckets that are copied back after every micro-batch are not described",
                   "remove it or reduce_every_microbatch");
  else if (scenario.plan.degrees.replicas() == 1)
    findings.error(pointer, "nothing is reduced: dp x cp is 1", "remove it");
}

void check_compression(const Scenario& scenario, const CompressionSection& section,
                       Findings& findings) {
  const std::string pointer = fmt::format("{}/compression", kSection);
  const CompressionKind kind = scenario.plan.data_parallel.compression.kind;
  if (section.rank && kind != CompressionKind::power_sgd)
    findings.error(pointer + "/rank", "only power_sgd makes factors of a rank", "remove it");
  if (section.density && kind != CompressionKind::top_k)
    findings.error(pointer + "/density", "only top_k sends a part of the gradients", "remove it");
  const models::Dtype gradients = scenario.recipe.precision.gradients;
  if ((kind == CompressionKind::fp16 || kind == CompressionKind::bf16) &&
      size_of(gradients) <= size_of(models::Dtype::fp16))
    findings.error(
        pointer + "/kind",
        fmt::format("gradients are {} already, no larger than {}", name(gradients), section.kind),
        "set precision/gradients to fp32, or remove it");
}

void check_shard_size(const recipe::ParallelDegrees& degrees, const DataParallelSection& section,
                      Findings& findings) {
  const std::string pointer = fmt::format("{}/shard_size", kSection);
  if (!section.shard_size) {
    findings.error(pointer, "is required and missing for hsdp", "usually the GPUs of a server");
    return;
  }
  if (degrees.replicas() % *section.shard_size != 0)
    findings.error(pointer, fmt::format("dp x cp = {} is not divisible into shards of {} ranks",
                                        degrees.replicas(), *section.shard_size));
  else if (degrees.replicas() == *section.shard_size)
    findings.error(pointer,
                   fmt::format("dp x cp is {} too: there is one replica", degrees.replicas()),
                   "use kind fsdp, or a smaller shard_size");
}

// Routed experts have replicas of their own, as many in each group that shares one copy.
void check_experts(const Scenario& scenario, Findings& findings) {
  const auto* transformer = std::get_if<models::Transformer>(&scenario.network);
  if (transformer == nullptr || transformer->moe.experts == 0) return;
  const plan::DataParallelStrategy strategy = plan::strategy_of(scenario.plan, scenario.recipe);
  const int replicas = scenario.plan.expert_replicas();
  if (replicas % strategy.replicas == 0) return;
  findings.error(
      fmt::format("{}/shard_size", kSection),
      fmt::format("each routed expert is on {} ranks of a stage, which are not divisible "
                  "among {} groups that hold a copy of all",
                  replicas, strategy.replicas),
      "raise shard_size, or lower ep");
}

// Requires: a scenario without errors so far, so that its schedule can be built.
void check_schedule(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelPlan& plan = scenario.plan;
  const plan::DataParallelStrategy strategy = plan::strategy_of(plan, scenario.recipe);
  if (plan.degrees.pipeline == 1 || (strategy.optimizer_shards == 1 && strategy.outer_period == 0))
    return;
  const schedule::ScheduleEntry* entry = schedule::find_schedule(plan.pipeline.schedule);
  if (entry != nullptr && entry->updates != schedule::Updates::after_all) {
    findings.error(fmt::format("{}/kind", kSection),
                   fmt::format("{} does not work with the schedule {}: it updates weights while "
                               "micro-batches are under way",
                               plan.data_parallel.kind, plan.pipeline.schedule),
                   "allreduce does");
    return;
  }
  const schedule::PipelineShape shape = plan::pipeline_shape(scenario.recipe, plan);
  const schedule::StageOrders orders = plan.pipeline.schedule == schedule::kCustomSchedule
                                           ? custom_orders(plan.pipeline.custom, shape)
                                           : build_stages(*entry, shape);
  if (const std::optional<std::string> why = unsupported(strategy, shape, orders))
    findings.error(fmt::format("{}/kind", kSection),
                   fmt::format("{} does not work with the schedule {}: {}", plan.data_parallel.kind,
                               plan.pipeline.schedule, *why),
                   "allreduce and zero1 do");
}

}  // namespace

void validate_data_parallel(const Scenario& scenario, const DataParallelSection& section,
                            Findings& findings) {
  const StrategyEntry* strategy = plan::find_strategy(section.kind);
  TRAINYARD_CHECK(strategy != nullptr, "the reader knows the names: {}", section.kind);
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  check_options(*strategy, section, findings);
  check_bucket_copies(scenario, section, findings);
  check_compression(scenario, section.compression, findings);
  if (strategy->name == "hsdp") check_shard_size(degrees, section, findings);
  if (findings.has_errors()) return;
  check_experts(scenario, findings);
  check_schedule(scenario, findings);
  if (scenario.plan.data_parallel.kind == "local_sgd")
    findings.warning(fmt::format("{}/kind", kSection),
                     fmt::format("the step carries 1/{} of a meeting of the replicas: it is an "
                                 "average over the steps between two",
                                 scenario.plan.data_parallel.steps_between));
  if (degrees.pipeline > 1 && (strategy->name == "zero2" || strategy->name == "zero3"))
    findings.warning(fmt::format("{}/kind", kSection),
                     fmt::format("DeepSpeed refuses {} with a pipeline, as it moves the whole "
                                 "network in every micro-batch; this is what it would take",
                                 strategy->name),
                     "PyTorch combines fsdp with pipelines");
  if ((strategy->name != "allreduce" || section.compression.kind != "none") &&
      degrees.replicas() *
              schedule::directions(plan::pipeline_shape(scenario.recipe, scenario.plan)) ==
          1)
    findings.warning(fmt::format("{}/kind", kSection),
                     fmt::format("dp is 1, so {} has nothing to {}", strategy->name,
                                 strategy->name == "allreduce" ? "exchange" : "divide"));
}

}  // namespace trainyard::scenario
