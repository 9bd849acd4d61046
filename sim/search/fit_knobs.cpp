#include "sim/search/fit_knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

#include "models/transformer/networks.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/schedule/schedule.h"

namespace trainyard::search {

using models::Dtype;
using models::Recompute;
using models::Transformer;
using plan::DataParallelStrategy;
using recipe::Axis;
using recipe::LayerSplit;
using scenario::Scenario;
using schedule::Holding;
using schedule::ScheduleEntry;

namespace {

using json::Value;

constexpr const char* kSplit = "/parallelism/pipeline/layer_split";
constexpr const char* kChunks = "/parallelism/pipeline/chunks_per_stage";
constexpr const char* kOverlap = "/parallelism/pipeline/overlap_passes";
constexpr const char* kDataParallel = "/parallelism/data_parallel";

bool says(const Scenario& scenario, const std::string& pointer) {
  return json::find(scenario.document, pointer) != nullptr;
}

const Transformer* transformer_of(const Scenario& scenario) {
  return scenario.network.find<Transformer>();
}

std::vector<Edits> one_edit(const char* pointer, Value value, std::string_view what) {
  std::vector<Edits> changes(1);
  changes[0].push_back({pointer, std::move(value), what});
  return changes;
}

// `degree` taken from the data-parallel one, twice or more as large.
std::vector<Edits> more_ranks(const Scenario& scenario, Axis axis, const char* pointer,
                              std::string_view what, int most) {
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  std::vector<Edits> changes;
  for (int factor = 2; degrees.data % factor == 0 && degrees.along(axis) * factor <= most;
       factor *= 2) {
    Edits& edits = changes.emplace_back();
    edits.push_back({pointer, Value::of(degrees.along(axis) * factor), what});
    if (says(scenario, "/parallelism/dp"))
      edits.push_back({"/parallelism/dp", Value::of(degrees.data / factor)});
  }
  return changes;
}

// Adds what keeps the layers divisible when there are `parts` of them in the pipeline.
void divide_layers(const Scenario& scenario, std::int64_t parts, Edits& edits) {
  if (scenario.plan.pipeline.branches) return;
  const LayerSplit split = scenario.plan.pipeline.layer_split;
  const bool uneven = divisible_layers(scenario.network) % parts != 0;
  if (split == LayerSplit::list || (split == LayerSplit::uniform && uneven))
    edits.push_back({kSplit, Value::of("balanced_with_embeddings")});
}

// Adds that passes follow each other, for what does not go with others.
void overlap_none(const Scenario& scenario, Edits& edits) {
  if (scenario.plan.pipeline.overlap_passes) edits.push_back({kOverlap, Value::null()});
}

// Inside a server; then also with sequence parallelism, which divides what is left whole.
std::vector<Edits> more_tensor_parallel(const Scenario& scenario) {
  std::vector<Edits> changes;
  for (Edits& edits : more_ranks(scenario, Axis::tensor, "/parallelism/tp", "tensor parallel",
                                 fewest_gpus_in_use(scenario.cluster))) {
    changes.push_back(edits);
    if (scenario.plan.tensor_parallel.sequence) continue;
    edits.push_back({"/parallelism/sequence_parallel", Value::of(true), "sequence parallelism"});
    changes.push_back(std::move(edits));
  }
  return changes;
}

std::vector<Edits> more_stages(const Scenario& scenario) {
  const int layers = static_cast<int>(divisible_layers(scenario.network));
  std::vector<Edits> changes =
      more_ranks(scenario, Axis::pipeline, "/parallelism/pp", "pipeline stages", layers);
  std::int64_t stages = scenario.plan.degrees.pipeline;
  for (Edits& edits : changes) {
    divide_layers(scenario, (stages *= 2) * scenario.plan.pipeline.chunks, edits);
    if (scenario.plan.pipeline.chunks == 1) overlap_none(scenario, edits);
  }
  return changes;
}

std::vector<Edits> more_context_parallel(const Scenario& scenario) {
  if (transformer_of(scenario) == nullptr) return {};
  constexpr int kMost = 16;
  return more_ranks(scenario, Axis::context, "/parallelism/cp", "context parallel", kMost);
}

std::vector<Edits> more_expert_parallel(const Scenario& scenario) {
  const Transformer* transformer = transformer_of(scenario);
  std::vector<Edits> changes;
  if (transformer == nullptr) return changes;
  for (std::int64_t ep = std::int64_t{2} * scenario.plan.experts.ranks;
       ep <= transformer->moe.experts; ep *= 2)
    changes.push_back({{"/parallelism/ep", Value::of(ep), "expert parallel"}});
  return changes;
}

bool divides_more(const DataParallelStrategy& a, const DataParallelStrategy& b) {
  return a.trains_apart == b.trains_apart && a.parameter_shards >= b.parameter_shards &&
         a.gradient_shards >= b.gradient_shards && a.optimizer_shards >= b.optimizer_shards &&
         (a.parameter_shards > b.parameter_shards || a.gradient_shards > b.gradient_shards ||
          a.optimizer_shards > b.optimizer_shards);
}

// Strategies that divide more among the replicas than the job's own; its options that mean nothing
// to them go.
std::vector<Edits> more_sharding(const Scenario& scenario) {
  const int replicas = scenario.plan.degrees.replicas();
  if (replicas == 1) return {};
  const DataParallelStrategy own = plan::strategy_of(scenario.plan, scenario.recipe);
  const int in_server = fewest_gpus_in_use(scenario.cluster) / scenario.plan.degrees.tensor;
  std::set<std::string_view> keys;  // that some strategy accepts
  for (const plan::StrategyEntry& entry : plan::data_parallel_strategies())
    keys.insert(entry.accepts.begin(), entry.accepts.end());
  std::vector<Edits> changes;
  for (const plan::StrategyEntry& entry : plan::data_parallel_strategies()) {
    const auto accepts = [&](std::string_view key) {
      return std::find(entry.accepts.begin(), entry.accepts.end(), key) != entry.accepts.end();
    };
    recipe::DataParallelOptions options = scenario.plan.data_parallel;
    const bool grouped = accepts("shard_size") && options.shard_size == 0;
    if (grouped) options.shard_size = in_server;
    if (accepts("shard_size") && (options.shard_size < 2 || options.shard_size >= replicas ||
                                  replicas % options.shard_size != 0))
      continue;
    const DataParallelStrategy strategy = entry.build(options, scenario.recipe, replicas);
    if (!divides_more(strategy, own)) continue;
    Edits& edits = changes.emplace_back();
    edits.push_back(
        {fmt::format("{}/kind", kDataParallel), Value::of(entry.name), "data parallelism"});
    if (strategy.gradient_shards > 1 || strategy.parameter_shards > 1)
      overlap_none(scenario, edits);
    if (grouped)
      edits.push_back({fmt::format("{}/shard_size", kDataParallel), Value::of(in_server)});
    for (const std::string_view key : keys) {
      const std::string pointer = fmt::format("{}/{}", kDataParallel, key);
      if (!accepts(key) && says(scenario, pointer)) edits.push_back({pointer, Value::null()});
    }
  }
  return changes;
}

std::vector<Edits> leaner_schedule(const Scenario& scenario) {
  const ScheduleEntry* own = schedule::find_schedule(scenario.plan.pipeline.schedule);
  if (own == nullptr || scenario.plan.degrees.pipeline == 1) return {};
  std::vector<Edits> changes;
  if (own->holding == Holding::unranked) return changes;
  for (const ScheduleEntry& other : schedule::schedules()) {
    if (other.holding < Holding::as_1f1b || other.holding <= own->holding) continue;
    Edits& edits = changes.emplace_back();
    edits.push_back({"/parallelism/pipeline/schedule", Value::of(other.name), "schedule"});
    if (says(scenario, kChunks)) edits.push_back({kChunks, Value::null()});
    overlap_none(scenario, edits);
    if (other.chunks != scenario.plan.pipeline.chunks)
      divide_layers(scenario, std::int64_t{other.chunks} * scenario.plan.degrees.pipeline, edits);
  }
  return changes;
}

// Interleaved 1F1B with v chunks holds 1 + (p - 1) / (p v) of what 1F1B does.
// Source: Korthikanti et al. 2022, section 4.2.3.
std::vector<Edits> more_chunks(const Scenario& scenario) {
  const ScheduleEntry* own = schedule::find_schedule(scenario.plan.pipeline.schedule);
  std::vector<Edits> changes;
  if (own == nullptr || !own->grouped || scenario.plan.pipeline.chunks == 1) return changes;
  const std::int64_t layers = divisible_layers(scenario.network);
  const int stages = scenario.plan.degrees.pipeline;
  for (int chunks = 2 * scenario.plan.pipeline.chunks; std::int64_t{chunks} * stages <= layers;
       chunks += scenario.plan.pipeline.chunks) {
    if (layers % (std::int64_t{chunks} * stages) != 0) continue;
    Edits& edits = changes.emplace_back();
    edits.push_back({kChunks, Value::of(chunks), "chunks per stage"});
    divide_layers(scenario, std::int64_t{chunks} * stages, edits);
  }
  return changes;
}

std::vector<Edits> smaller_micro_batch(const Scenario& scenario) {
  std::vector<Edits> changes;
  for (std::int64_t size = scenario.recipe.micro_batch.size / 2; size >= 1; size /= 2)
    changes.push_back({{"/training/micro_batch", Value::of(size), "micro-batch"}});
  return changes;
}

std::vector<Edits> more_recomputation(const Scenario& scenario) {
  const recipe::TrainingRecipe& recipe = scenario.recipe;
  std::vector<Edits> changes;
  const auto add = [&](Recompute more) {
    changes.push_back({{"/training/recompute", Value::of(name(more)), "recomputation"}});
  };
  if (recipe.recompute.except_last)
    changes.push_back({{"/training/recompute_micro_batches", Value::of("all"), "recomputation"}});
  if (recipe.recompute.form == Recompute::none) add(Recompute::selective);
  const bool all_layers = recipe.recompute.layers.method == models::RecomputeLayers::Method::all;
  if (recipe.recompute.form != Recompute::full || !all_layers) add(Recompute::full);
  return changes;
}

std::vector<Edits> sequence_parallel(const Scenario& scenario) {
  if (scenario.plan.tensor_parallel.sequence || scenario.plan.degrees.tensor == 1) return {};
  return one_edit("/parallelism/sequence_parallel", Value::of(true), "sequence parallelism");
}

std::vector<Edits> fused_attention(const Scenario& scenario) {
  if (scenario.recipe.kernels.fused_attention() || stack_of(scenario.network) == nullptr) return {};
  if (!runs_flash_attention(oldest_gpu(scenario.cluster).compute_capability)) return {};
  return one_edit("/training/fused_attention", Value::of(true), "fused attention");
}

std::vector<Edits> half_gradients(const Scenario& scenario) {
  const Dtype compute = scenario.recipe.precision.compute;
  if (scenario.recipe.precision.gradients != Dtype::fp32 || compute == Dtype::fp32 ||
      compute == Dtype::tf32)
    return {};
  const Dtype half = compute == Dtype::fp16 ? Dtype::fp16 : Dtype::bf16;
  return one_edit("/training/precision/gradients", Value::of(name(half)), "gradients");
}

// Layers gathered one by one exist in strategies that shard parameters.
bool gathers_layers(const Scenario& scenario) {
  return plan::strategy_of(scenario.plan, scenario.recipe).gathering == plan::Gathering::each_pass;
}

std::vector<Edits> reshard(const Scenario& scenario) {
  if (!gathers_layers(scenario) || scenario.plan.data_parallel.reshard_after_forward) return {};
  return one_edit("/parallelism/data_parallel/reshard_after_forward", Value::of(true),
                  "reshard after forward");
}

std::vector<Edits> limited_gathers(const Scenario& scenario) {
  if (!gathers_layers(scenario) || scenario.plan.data_parallel.limit_all_gathers) return {};
  return one_edit("/parallelism/data_parallel/limit_all_gathers", Value::of(true),
                  "limited gathers");
}

std::vector<Edits> no_prefetch(const Scenario& scenario) {
  if (!gathers_layers(scenario) || scenario.plan.data_parallel.prefetch_layers == 0) return {};
  return one_edit("/parallelism/data_parallel/prefetch_layers", Value::of(0), "prefetched layers");
}

// What FSDP updates is where its shards are, so that both go.
std::vector<Edits> offload_optimizer(const Scenario& scenario) {
  if (scenario.recipe.offload.optimizer != recipe::OffloadTo::none) return {};
  std::vector<Edits> changes =
      one_edit("/training/offload/optimizer", Value::of("cpu"), "optimizer on the host");
  if (plan::strategy_of(scenario.plan, scenario.recipe).layer_units)
    changes[0].push_back(
        {"/training/offload/parameters", Value::of("cpu"), "parameters on the host"});
  return changes;
}

std::vector<Edits> offload_activations(const Scenario& scenario) {
  if (scenario.recipe.offload.activations) return {};
  std::vector<Edits> changes =
      one_edit("/training/offload/activations", Value::of("cpu"), "activations on the host");
  overlap_none(scenario, changes[0]);
  return changes;
}

constexpr std::array<FitKnob, 17> kKnobs = {{
    {"fused attention", fused_attention},
    {"tensor parallelism", more_tensor_parallel, true},
    {"pipeline parallelism", more_stages, true},
    {"context parallelism", more_context_parallel, true},
    {"expert parallelism", more_expert_parallel, true},
    {"data parallelism", more_sharding},
    {"schedule", leaner_schedule},
    {"chunks", more_chunks, true},
    {"micro-batch", smaller_micro_batch, true},
    {"recomputation", more_recomputation, true},
    {"sequence parallelism", sequence_parallel},
    {"gradients", half_gradients},
    {"reshard after forward", reshard},
    {"limited gathers", limited_gathers},
    {"prefetching", no_prefetch},
    {"optimizer offload", offload_optimizer},
    {"activation offload", offload_activations},
}};

}  // namespace

bool runs_flash_attention(std::string_view compute_capability) {
  constexpr int kLeastMajor = 8;
  int major = kLeastMajor;
  std::from_chars(compute_capability.data(), compute_capability.data() + compute_capability.size(),
                  major);
  return major >= kLeastMajor;
}

std::string untried_knobs(const Scenario& scenario) {
  const topologies::ClusterSpec& cluster = scenario.cluster;
  if (cluster.kinds() > 1 || cluster.server.host_memory_bandwidth.count() > 0) return {};
  Value patch = Value::object();
  for (const Edits& edits : offload_optimizer(scenario))
    for (const Edit& edit : edits)
      json::set(patch, edit.pointer, edit.value);
  if (patch.members.empty()) return {};
  json::set(patch, "/cluster/node/host/memory_bandwidth", Value::of("200GB/s"));
  const bool only_that = with_patch(scenario, patch).has_value();
  json::set(patch, "/cluster/node/host/pcie_bandwidth", Value::of("25GB/s"));
  if (!only_that && !with_patch(scenario, patch)) return {};
  return only_that
             ? "Not tried: the optimizer on the host; state the servers' host/memory_bandwidth."
             : "Not tried: the optimizer on the host; state host/memory_bandwidth, pcie_bandwidth.";
}

std::span<const FitKnob> fit_knobs() {
  return kKnobs;
}

}  // namespace trainyard::search
