// /parallelism/pipeline: its table, what follows from the schedule, layers against stages and
// micro-batches against the schedule.
#include <fmt/format.h>

#include <numeric>

#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/schedule/custom_schedule.h"
#include "sim/schedule/schedule.h"

namespace trainyard::recipe {

using schedule::Placement;

namespace {

constexpr std::array<json::Choice<Placement>, 3> kPlacements = {
    {{"looped", Placement::looped},
     {"v", Placement::v_shaped},
     {"bidirectional", Placement::bidirectional}}};

}  // namespace

void visit_fields(json::Fields& f, Pipeline& s) {
  std::vector<std::string_view> names;
  for (const schedule::ScheduleEntry& entry : schedule::schedules())
    names.push_back(entry.name);
  names.push_back(schedule::kCustomSchedule);
  f.name("schedule", s.schedule, names, json::optional, "Order of forward and backward passes.");
  f.list("slots", s.custom.slots, json::optional, json::anything,
         "Of schedule custom: for each stage its passes in order, as \"F0 F1 B0 B1\".");
  f.choice("placement", s.custom.placement, kPlacements, json::optional,
           "Of schedule custom: where chunks are, or copies of the network.");
  f.field("chunks_per_stage", s.chunks, json::between(1, 1024),
          "Virtual stages per stage. Default: as many as the schedule has by itself.");
  f.field("group_size", s.group_size, json::between(1, 1 << 20),
          "Of interleaved_1f1b: micro-batches through a chunk before the next chunk. Default: pp.");
  // In the order of LayerSplit.
  constexpr std::array<std::string_view, 4> kSplits = {"uniform", "balanced_with_embeddings",
                                                       "by_time", "by_memory"};
  std::string split(s.layer_split == LayerSplit::list
                        ? kSplits[0]
                        : kSplits[static_cast<std::size_t>(s.layer_split)]);
  f.numbers_or_name(
      {"layer_split", json::optional, json::at_least(0),
       "Layers of each virtual stage, chunk by chunk, 0 for none; or how to find them: as many "
       "each, or balanced by forward FLOPs, by the time of their kernels, by memory."},
      kSplits, split, s.layers_per_chunk);
  const auto known = std::find(kSplits.begin(), kSplits.end(), split);
  s.layer_split = !s.layers_per_chunk.empty() ? LayerSplit::list
                                              : static_cast<LayerSplit>(known - kSplits.begin());
  f.section("branches", s.branches,
            "Layers of a network with parallel branches placed on the stages in any way, in place "
            "of a cut of their order.");
  f.field("overlap_p2p", s.overlap_p2p, json::optional,
          "Computing goes on while activations are sent; false: as blocking calls do.");
  f.field("overlap_passes", s.overlap_passes, json::optional,
          "Of interleaved_1f1b, and of 1f1b without a pipeline: each forward after the warm-up, of "
          "one micro-batch more, takes turns with the backward after it, so that exchanges of "
          "experts hide under the other pass (Megatron-LM's overlap_moe_expert_parallel_comm).");
  f.field("scatter_gather", s.scatter_gather, json::optional,
          "Tensor-parallel ranks send a part of each message and gather the whole on arrival "
          "(Megatron-LM of 2021, DeepSpeed); false: each sends the whole.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

using recipe::LayerSplit;
using schedule::PipelineShape;

namespace {

void check_layers(const Scenario& scenario, Findings& findings) {
  const recipe::Pipeline& pipeline = scenario.plan.pipeline;
  if (pipeline.branches) return;
  const int stages = scenario.plan.degrees.pipeline;
  const std::int64_t layers = divisible_layers(scenario.network);
  const std::int64_t parts = std::int64_t{stages} * pipeline.chunks;
  const std::string chunks = pipeline.chunks == 1 ? fmt::format("{} stages", stages)
                                                  : fmt::format("{} stages x {} chunks = {}",
                                                                stages, pipeline.chunks, parts);
  if (pipeline.layer_split == LayerSplit::list) {
    const std::vector<int>& list = pipeline.layers_per_chunk;
    const std::int64_t sum = std::accumulate(list.begin(), list.end(), std::int64_t{0});
    if (static_cast<std::int64_t>(list.size()) != parts)
      findings.error("/parallelism/pipeline/layer_split",
                     fmt::format("{} numbers for {}", list.size(), chunks));
    else if (sum != layers)
      findings.error("/parallelism/pipeline/layer_split",
                     fmt::format("the numbers sum to {}, the network has {} layers", sum, layers));
    return;
  }
  if (parts > layers) {
    findings.error("/parallelism/pp", fmt::format("{} layers are too few for {}", layers, chunks),
                   "a stage goes without if /parallelism/pipeline/layer_split lists it with 0");
  } else if (pipeline.layer_split == LayerSplit::uniform && layers % parts != 0) {
    findings.error("/parallelism/pp",
                   fmt::format("{} layers are not divisible by {}", layers, chunks),
                   "state /parallelism/pipeline/layer_split: a list of layers per stage, "
                   "\"balanced_with_embeddings\", \"by_time\" or \"by_memory\"");
  }
}

// The first and the last virtual stage may do without layers where they have an embedding or
// logits. Requires: no errors so far.
void check_ends(const Scenario& scenario, Findings& findings) {
  const std::vector<int>& list = scenario.plan.pipeline.layers_per_chunk;
  if (list.empty() || (list.front() > 0 && list.back() > 0)) return;
  const models::NetworkWork work =
      network_work(scenario.network, plan::execution(scenario.recipe, scenario.plan));
  const auto check = [&](std::size_t at, bool is_layer, const char* end) {
    if (list[at] == 0 && is_layer)
      findings.error(fmt::format("/parallelism/pipeline/layer_split/{}", at),
                     fmt::format("without layers it would have nothing: the network {} with a "
                                 "layer",
                                 end),
                     "give it one");
  };
  check(0, work.divisible.front(), "begins");
  check(list.size() - 1, work.divisible.back(), "ends");
}

// The smallest group that takes the micro-batches; empty if none does.
std::string possible_group(PipelineShape shape) {
  for (shape.group = shape.stages; shape.group <= shape.microbatches; ++shape.group)
    if (!interleaved_unsupported(shape))
      return fmt::format("set parallelism.pipeline.group_size to {}", shape.group);
  return {};
}

void check_custom_schedule(const Scenario& scenario, Findings& findings) {
  const std::string pointer = "/parallelism/pipeline/slots";
  const PipelineShape shape = plan::pipeline_shape(scenario.recipe, scenario.plan);
  const std::vector<std::string>& slots = scenario.plan.pipeline.custom.slots;
  if (static_cast<int>(slots.size()) != shape.stages) {
    findings.error(pointer,
                   fmt::format("{} stages have slots, pp is {}", slots.size(), shape.stages));
    return;
  }
  if (shape.placement == schedule::Placement::v_shaped && shape.chunks != 2) {
    findings.error("/parallelism/pipeline/chunks_per_stage",
                   fmt::format("a V has 2 chunks per stage, got {}", shape.chunks));
    return;
  }
  if (shape.placement == schedule::Placement::bidirectional &&
      (shape.chunks != 1 || shape.stages % 2 != 0)) {
    findings.error("/parallelism/pipeline/placement",
                   "two copies need an even number of stages with 1 chunk each");
    return;
  }
  schedule::StageOrders orders;
  bool parsed = true;
  for (std::size_t stage = 0; stage < slots.size(); ++stage) {
    std::optional<std::string> problem;
    orders.push_back(parse_slots(slots[stage], shape, problem));
    if (!problem) continue;
    findings.error(fmt::format("{}/{}", pointer, stage), *problem);
    parsed = false;
  }
  if (!parsed) return;
  if (const std::optional<std::string> wrong = check_schedule(shape, orders))
    findings.error(pointer, *wrong);
}

// Requires: the reader knows the schedule's name.
bool check_overlap(const Scenario& scenario, Findings& findings) {
  const recipe::Pipeline& pipeline = scenario.plan.pipeline;
  if (!pipeline.overlap_passes) return true;
  const char* pointer = "/parallelism/pipeline/overlap_passes";
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(pipeline.schedule);
  if (pipeline.schedule == schedule::kCustomSchedule) {
    findings.error(pointer, "schedule custom has its own order",
                   "remove it, and write pairs into the slots, as \"F1+B0\"");
    return false;
  }
  if (schedule == nullptr || !schedule->pairs) {
    findings.error(pointer, fmt::format("schedule {} has no choice of pairs", pipeline.schedule),
                   "remove it; 1f1b and interleaved_1f1b have");
    return false;
  }
  if (scenario.plan.degrees.pipeline > 1 && pipeline.chunks == 1) {
    findings.error(pointer, "stages of 1 chunk cannot overlap their passes",
                   fmt::format("set {}chunks_per_stage to 2 or more",
                               schedule->grouped ? "" : "schedule to \"interleaved_1f1b\" and "));
    return false;
  }
  if (scenario.plan.experts.ranks == 1)
    findings.warning(pointer, "experts are on one rank: no exchange of theirs is there to hide",
                     "remove it, or set /parallelism/ep");
  else if (scenario.recipe.forward_only)
    findings.warning(pointer, "no backward pass is there to overlap with", "remove it");
  else if (microbatches_per_step(scenario) == 1)
    findings.warning(pointer, "one micro-batch has no other to overlap with", "remove it");
  return true;
}

void check_chunks_and_schedule(const Scenario& scenario, Findings& findings) {
  const recipe::Pipeline& pipeline = scenario.plan.pipeline;
  const int stages = scenario.plan.degrees.pipeline;
  if (pipeline.chunks > 1 && stages == 1) {
    findings.error("/parallelism/pipeline/chunks_per_stage",
                   fmt::format("{} chunks per stage need a pipeline, pp is 1", pipeline.chunks));
    return;
  }
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(pipeline.schedule);
  if (pipeline.group_size > 0 && (schedule == nullptr || !schedule->grouped)) {
    findings.error("/parallelism/pipeline/group_size",
                   fmt::format("schedule {} has no groups of micro-batches", pipeline.schedule),
                   "remove it");
    return;
  }
  if (!check_overlap(scenario, findings)) return;
  const std::int64_t microbatches = microbatches_per_step(scenario);
  if (microbatches == 0) return;
  if (pipeline.schedule == schedule::kCustomSchedule) {
    check_custom_schedule(scenario, findings);
    return;
  }
  if (!pipeline.custom.slots.empty())
    findings.error("/parallelism/pipeline/slots",
                   fmt::format("schedule {} has its own order", pipeline.schedule),
                   "remove them, or set the schedule to \"custom\"");
  if (schedule == nullptr) return;  // the reader knows the names
  const PipelineShape shape = plan::pipeline_shape(scenario.recipe, scenario.plan);
  if (const std::optional<std::string> why = schedule->unsupported(shape)) {
    PipelineShape own = shape;
    own.chunks = schedule->chunks;
    const bool is_of_chunks = shape.chunks != own.chunks && !schedule->unsupported(own);
    if (is_of_chunks)
      findings.error("/parallelism/pipeline/chunks_per_stage", *why,
                     fmt::format("set it to {}, or choose a schedule of several chunks such as "
                                 "interleaved_1f1b",
                                 own.chunks));
    else
      findings.error("/parallelism/pipeline/schedule", *why,
                     schedule->grouped ? possible_group(shape) : "");
  }
  if (schedule->grouped && pipeline.chunks == 1 && stages > 1)
    findings.warning("/parallelism/pipeline/schedule",
                     fmt::format("{} of one chunk per stage is 1f1b", pipeline.schedule),
                     "set chunks_per_stage to 2 or more, or the schedule to \"1f1b\"");
  if (schedule->updates != schedule::Updates::after_all && stages > 1 &&
      scenario.recipe.gradient_clipping)
    findings.warning("/training/gradient_clipping",
                     fmt::format("{} never flushes the pipeline, but each update then waits for "
                                 "the norm of all stages' gradients, which does",
                                 pipeline.schedule),
                     "set it to false");
  const bool fills = !schedule->one_at_a_time && !pipeline.branches;
  if (!schedule->unsupported(shape) && microbatches < stages && fills)
    findings.warning("/parallelism/pp",
                     fmt::format("{} micro-batches do not fill {} stages", microbatches, stages));
}

void check_messages(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelPlan& plan = scenario.plan;
  if (!plan.pipeline.scatter_gather) return;
  const char* pointer = "/parallelism/pipeline/scatter_gather";
  if (plan.degrees.pipeline == 1)
    findings.warning(pointer, "pp is 1: there are no messages between stages", "remove it");
  else if (plan.degrees.tensor == 1)
    findings.warning(pointer, "tp is 1: there are no parts to send", "remove it");
  else if (plan.tensor_parallel.sequence)
    findings.warning(pointer,
                     fmt::format("changes nothing: with sequence parallelism a rank has 1/{} of "
                                 "each message and needs no more",
                                 plan.degrees.tensor),
                     "remove it");
}

// Whether the order is about stages and nothing else: not when weights are updated, nor on chunks.
bool orders_stages_alone(std::string_view name) {
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(name);
  return schedule != nullptr && schedule->updates == schedule::Updates::after_all &&
         schedule->chunks == 1 && !schedule->grouped && !schedule->pairs;
}

void check_order_of_one_stage(const Scenario& scenario, Findings& findings) {
  const char* pointer = "/parallelism/pipeline/schedule";
  const json::Value* said = json::find(scenario.document, pointer);
  if (scenario.plan.degrees.pipeline > 1 || said == nullptr) return;
  const bool is_name = said->is(json::Kind::string);
  if (is_name && said->text != "1f1b" && orders_stages_alone(said->text))
    findings.warning(pointer, "means nothing: pp is 1", "remove it");
}

}  // namespace

recipe::Pipeline assemble_pipeline(recipe::Pipeline pipeline, int stages) {
  if (stages == 1 && orders_stages_alone(pipeline.schedule)) pipeline.schedule = "1f1b";
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(pipeline.schedule);
  const bool folded = pipeline.custom.placement == schedule::Placement::v_shaped;
  pipeline.chunks.otherwise(schedule != nullptr ? schedule->chunks : folded ? 2 : 1);
  return pipeline;
}

void validate_pipeline(const Scenario& scenario, Findings& findings) {
  check_order_of_one_stage(scenario, findings);
  check_layers(scenario, findings);
  check_chunks_and_schedule(scenario, findings);
  check_messages(scenario, findings);
  if (!findings.has_errors()) check_ends(scenario, findings);
}

}  // namespace trainyard::scenario
