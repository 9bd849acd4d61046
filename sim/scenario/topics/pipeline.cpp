// /parallelism/pipeline: its table, and what follows from the schedule.
#include "sim/scenario/topics/assemble.h"
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
  constexpr std::array<std::string_view, 2> kSplits = {"uniform", "balanced_with_embeddings"};
  std::string split(s.layer_split == LayerSplit::uniform ? kSplits[0] : kSplits[1]);
  f.numbers_or_name({"layer_split", json::optional, json::at_least(1),
                     "Layers of each virtual stage, chunk by chunk; or how to find them."},
                    kSplits, split, s.layers_per_chunk);
  s.layer_split = !s.layers_per_chunk.empty() ? LayerSplit::list
                  : split == kSplits[0]       ? LayerSplit::uniform
                                              : LayerSplit::balanced;
  f.field("overlap_p2p", s.overlap_p2p, json::optional,
          "Computing goes on while activations are sent; false: as blocking calls do.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

recipe::Pipeline assemble_pipeline(recipe::Pipeline pipeline) {
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(pipeline.schedule);
  const bool folded = pipeline.schedule == schedule::kCustomSchedule &&
                      pipeline.custom.placement == schedule::Placement::v_shaped;
  pipeline.chunks.otherwise(schedule != nullptr ? schedule->chunks : folded ? 2 : 1);
  return pipeline;
}

}  // namespace trainyard::scenario
