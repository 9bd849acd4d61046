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

constexpr std::array<ScheduleEntry, 4> kSchedules = {{
    {"1f1b", "one forward, one backward after a warm-up; as GPipe in less memory", one_f_one_b,
     one_chunk_per_stage},
    {"interleaved_1f1b", "1F1B over several chunks per stage; a smaller bubble for more messages",
     interleaved_one_f_one_b, groups_of_microbatches},
    {"gpipe", "all forwards, then all backwards", gpipe, one_chunk_per_stage},
    {"sequential", "plain model parallelism: one micro-batch at a time through all stages",
     sequential, one_chunk_per_stage},
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

std::vector<std::vector<Slot>> build_stages(const ScheduleEntry& entry,
                                            const PipelineShape& shape) {
  const auto why = entry.unsupported(shape);
  TRAINYARD_CHECK(!why, "{}: {}", entry.name, *why);
  std::vector<std::vector<Slot>> stages;
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(entry.build(shape, stage));
  return stages;
}

}  // namespace trainyard
