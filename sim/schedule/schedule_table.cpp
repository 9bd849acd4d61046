// The list of all schedules: the reader, help and the generic tests go through it.
#include <fmt/format.h>

#include <array>

#include "sim/base/check.h"
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
namespace {

std::optional<std::string> impossible(const PipelineShape& shape) {
  if (shape.stages < 1) return fmt::format("a pipeline has at least 1 stage, got {}", shape.stages);
  if (shape.microbatches < 1)
    return fmt::format("a step has at least 1 micro-batch, got {}", shape.microbatches);
  if (shape.chunks < 1) return fmt::format("a stage has at least 1 chunk, got {}", shape.chunks);
  if (shape.group < 0)
    return fmt::format("a group has at least 1 micro-batch, got {}", shape.group);
  if (shape.paired) return "this schedule has no choice of pairs; 1f1b and interleaved_1f1b have";
  return std::nullopt;
}

std::optional<std::string> one_chunk_per_stage(const PipelineShape& shape) {
  if (auto why = impossible(shape)) return why;
  if (shape.chunks != 1)
    return fmt::format("this schedule has 1 chunk per stage, got {}", shape.chunks);
  return std::nullopt;
}

std::optional<std::string> groups_of_microbatches(const PipelineShape& shape) {
  if (auto why = impossible(shape)) return why;
  return interleaved_unsupported(shape);
}

// The rule of a schedule that takes pairs. With one chunk per stage neighbours would take turns
// with them, as each pair needs the one before it of both neighbours. Megatron-LM refuses it too.
template <std::optional<std::string> (*rule)(const PipelineShape&)>
std::optional<std::string> with_pairs(const PipelineShape& shape) {
  PipelineShape alone = shape;
  alone.paired = false;
  if (auto why = rule(alone)) return why;
  if (!shape.paired || shape.stages == 1 || shape.chunks > 1) return std::nullopt;
  return fmt::format("passes of {} stages with 1 chunk each cannot overlap", shape.stages);
}

// A rule of one chunk per stage, and one of the schedule's own.
template <std::optional<std::string> (*rule)(const PipelineShape&)>
std::optional<std::string> one_chunk_and(const PipelineShape& shape) {
  auto why = one_chunk_per_stage(shape);
  return why ? why : rule(shape);
}

std::optional<std::string> fills_the_stages(const PipelineShape& shape) {
  if (shape.microbatches >= shape.stages) return std::nullopt;
  return fmt::format("a step without flush needs at least one micro-batch per stage ({}), got {}",
                     shape.stages, shape.microbatches);
}

std::optional<std::string> v_of_stages(const PipelineShape& shape) {
  auto why = impossible(shape);
  return why ? why : two_chunks(shape);
}

std::optional<std::string> dual_v(const PipelineShape& shape) {
  auto why = v_of_stages(shape);
  return why ? why : dual_pipe_v_unsupported(shape);
}

// A schedule whose stages are made one by one.
template <std::vector<Slot> (*order)(const PipelineShape&, int)>
StageOrders by_stage(const PipelineShape& shape, const ScheduleInputs& /*inputs*/) {
  StageOrders stages;
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(order(shape, stage));
  return stages;
}

constexpr std::array<ScheduleEntry, 16> kSchedules = {{
    {.name = "1f1b",
     .summary = "one forward, one backward after a warm-up; as GPipe in less memory",
     .source = "Narayanan et al., SC 2021, 2.2.1 (PipeDream-Flush)",
     .build = by_stage<one_f_one_b>,
     .unsupported = with_pairs<one_chunk_per_stage>,
     .holding = Holding::as_1f1b,
     .pairs = true,
     .fills_and_drains = true},
    {.name = "interleaved_1f1b",
     .summary = "1F1B over several chunks per stage; a smaller bubble for more messages",
     .source = "Narayanan et al., SC 2021, 2.2.2; Megatron-LM",
     .needs = "micro-batches in whole groups of p, or a last group of at least p",
     .build = by_stage<interleaved_one_f_one_b>,
     .unsupported = with_pairs<groups_of_microbatches>,
     .holding = Holding::above_1f1b,
     .pairs = true,
     .grouped = true,
     .fills_and_drains = true},
    {.name = "gpipe",
     .summary = "all forwards, then all backwards",
     .source = "Huang et al., NeurIPS 2019, 2.3",
     .build = by_stage<gpipe>,
     .unsupported = one_chunk_per_stage,
     .holding = Holding::every_microbatch,
     .fills_and_drains = true},
    {.name = "breadth_first",
     .summary = "GPipe over several chunks, all micro-batches through one before the next",
     .source = "Lamy-Poirier, MLSys 2023",
     .chunks = 2,
     .build = by_stage<breadth_first>,
     .unsupported = impossible,
     .holding = Holding::every_microbatch},
    {.name = "zb_h1",
     .summary = "1F1B with weight gradients in its bubble; the memory of 1F1B",
     .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, 2.1",
     .build = by_stage<zero_bubble_h1>,
     .unsupported = one_chunk_per_stage,
     .holding = Holding::as_1f1b},
    {.name = "zb_h2",
     .summary = "no bubble but between steps, for twice the activations",
     .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, 2.2",
     .build = by_stage<zero_bubble_h2>,
     .unsupported = one_chunk_per_stage,
     .holding = Holding::above_1f1b},
    {.name = "zb_auto",
     .summary = "the best order found for the job's own times and memory",
     .source = "after Qi et al., ICLR 2024, 3.1",
     .build = zero_bubble_auto,
     .unsupported = one_chunk_per_stage,
     .times_from = "zb_h1",
     .holding = Holding::above_1f1b},
    {.name = "zb_v",
     .summary = "no bubble but between steps, in the memory of 1F1B; two chunks, down and up",
     .source = "Qi et al., Zero Bubble Pipeline Parallelism, 2024, 6",
     .needs = "2 chunks per stage",
     .placement = Placement::v_shaped,
     .chunks = 2,
     .build = zero_bubble_v,
     .unsupported = v_of_stages,
     .holding = Holding::as_1f1b},
    {.name = "v_half",
     .summary = "half the activations of 1F1B and half its bubble",
     .source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024",
     .needs = "2 chunks per stage",
     .placement = Placement::v_shaped,
     .chunks = 2,
     .build = v_half,
     .unsupported = v_of_stages,
     .holding = Holding::half_of_1f1b},
    {.name = "v_min",
     .summary = "a third of the activations of 1F1B and two thirds of its bubble",
     .source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024",
     .needs = "2 chunks per stage",
     .placement = Placement::v_shaped,
     .chunks = 2,
     .build = v_min,
     .unsupported = v_of_stages,
     .holding = Holding::third_of_1f1b},
    {.name = "chimera",
     .summary = "two copies of the network in opposite directions, half the bubble of 1F1B",
     .source = "Li and Hoefler, SC 2021",
     .needs = "an even number of stages and of micro-batches",
     .placement = Placement::bidirectional,
     .build = by_stage<chimera>,
     .unsupported = one_chunk_and<chimera_unsupported>,
     .holding = Holding::above_1f1b},
    {.name = "dualpipe",
     .summary = "two copies in opposite directions; forwards overlap with backwards",
     .source = "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, 3.2.1",
     .needs = "an even number of stages, an even number of micro-batches from 2p on",
     .placement = Placement::bidirectional,
     .build = by_stage<dual_pipe>,
     .unsupported = one_chunk_and<dual_pipe_unsupported>,
     .holding = Holding::above_1f1b},
    {.name = "dualpipe_v",
     .summary = "DualPipe cut in half: one copy folded into a V",
     .source = "DeepSeek-AI, DualPipe, 2025; after Sea AI Lab",
     .needs = "2 chunks per stage, at least 2p micro-batches",
     .placement = Placement::v_shaped,
     .chunks = 2,
     .build = by_stage<dual_pipe_v>,
     .unsupported = dual_v,
     .holding = Holding::above_1f1b},
    {.name = "pipedream",
     .summary = "1F1B without end: an update after every micro-batch, old weights kept",
     .source = "Narayanan et al., PipeDream, SOSP 2019",
     .build = by_stage<one_f_one_b>,
     .unsupported = one_chunk_per_stage,
     .updates = Updates::every_microbatch},
    {.name = "pipedream_2bw",
     .summary = "1F1B without end: an update per step, two versions of the weights",
     .source = "Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021",
     .needs = "at least p micro-batches",
     .build = by_stage<one_f_one_b>,
     .unsupported = one_chunk_and<fills_the_stages>,
     .updates = Updates::without_flush},
    {.name = "sequential",
     .summary = "plain model parallelism: one micro-batch at a time through all stages",
     .source = "no overlap at all, by definition",
     .build = by_stage<sequential>,
     .unsupported = one_chunk_per_stage,
     .one_at_a_time = true},
}};

bool same_name(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if ((a[i] == '-' ? '_' : a[i]) != (b[i] == '-' ? '_' : b[i])) return false;
  return true;
}

}  // namespace

std::span<const ScheduleEntry> schedules() {
  return kSchedules;
}

const ScheduleEntry* find_schedule(std::string_view name) {
  for (const ScheduleEntry& entry : kSchedules)
    if (same_name(entry.name, name)) return &entry;
  return nullptr;
}

int weight_versions(const ScheduleEntry& entry, const PipelineShape& shape, int stage) {
  switch (entry.updates) {
    case Updates::after_all: return 1;
    case Updates::every_microbatch: return shape.stages - stage;
    case Updates::without_flush: return shape.stages > 1 ? 2 : 1;
  }
  return 1;
}

PipelineShape shape_of(const ScheduleEntry& entry, int stages, int microbatches, int chunks) {
  return {.stages = stages,
          .microbatches = microbatches,
          .chunks = chunks == 0 ? entry.chunks : chunks,
          .placement = entry.placement};
}

StageOrders build_stages(const ScheduleEntry& entry, const PipelineShape& shape,
                         const ScheduleInputs& inputs) {
  const auto why = entry.unsupported(shape);
  TRAINYARD_CHECK(!why, "{}: {}", entry.name, *why);
  TRAINYARD_CHECK(shape.placement == entry.placement, "{} is placed otherwise", entry.name);
  return entry.build(shape, inputs);
}

}  // namespace trainyard::schedule
