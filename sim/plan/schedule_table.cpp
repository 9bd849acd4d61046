// The list of all schedules: the reader, help and the generic tests go through it.
#include <fmt/format.h>

#include <array>

#include "sim/base/check.h"
#include "sim/plan/schedule.h"

namespace trainyard {
namespace {

std::optional<std::string> impossible(const PipelineShape& shape) {
  if (shape.stages < 1) return fmt::format("a pipeline has at least 1 stage, got {}", shape.stages);
  if (shape.microbatches < 1)
    return fmt::format("a step has at least 1 micro-batch, got {}", shape.microbatches);
  if (shape.chunks < 1) return fmt::format("a stage has at least 1 chunk, got {}", shape.chunks);
  if (shape.group < 0)
    return fmt::format("a group has at least 1 micro-batch, got {}", shape.group);
  return std::nullopt;
}

std::optional<std::string> one_chunk_per_stage(const PipelineShape& shape) {
  if (auto why = impossible(shape)) return why;
  if (shape.chunks != 1)
    return fmt::format("only interleaved_1f1b runs several chunks per stage, got {}", shape.chunks);
  return std::nullopt;
}

std::optional<std::string> groups_of_microbatches(const PipelineShape& shape) {
  if (auto why = impossible(shape)) return why;
  return interleaved_unsupported(shape);
}

// A schedule whose stages are made one by one.
template <std::vector<Slot> (*order)(const PipelineShape&, int)>
StageOrders by_stage(const PipelineShape& shape, const ScheduleInputs& /*inputs*/) {
  StageOrders stages;
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(order(shape, stage));
  return stages;
}

constexpr std::array<ScheduleEntry, 4> kSchedules = {{
    {.name = "1f1b",
     .summary = "one forward, one backward after a warm-up; as GPipe in less memory",
     .source = "Narayanan et al., SC 2021, 2.2.1 (PipeDream-Flush)",
     .build = by_stage<one_f_one_b>,
     .unsupported = one_chunk_per_stage},
    {.name = "interleaved_1f1b",
     .summary = "1F1B over several chunks per stage; a smaller bubble for more messages",
     .source = "Narayanan et al., SC 2021, 2.2.2; Megatron-LM",
     .needs = "micro-batches in whole groups of p, or a last group of at least p",
     .build = by_stage<interleaved_one_f_one_b>,
     .unsupported = groups_of_microbatches},
    {.name = "gpipe",
     .summary = "all forwards, then all backwards",
     .source = "Huang et al., NeurIPS 2019, 2.3",
     .build = by_stage<gpipe>,
     .unsupported = one_chunk_per_stage},
    {.name = "sequential",
     .summary = "plain model parallelism: one micro-batch at a time through all stages",
     .source = "no overlap at all, by definition",
     .build = by_stage<sequential>,
     .unsupported = one_chunk_per_stage},
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

}  // namespace trainyard
