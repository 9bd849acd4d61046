// Stages and the order of their passes: what a scenario says under /parallelism/pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/option.h"
#include "sim/schedule/custom_schedule.h"

namespace trainyard::recipe {

// How layers are dealt to the stages: evenly by count, evenly by forward FLOPs (embedding and
// logits count), by the predicted time of their kernels, or by what a stage holds; or as a list of
// one number per stage and chunk, in forward order (chunk-major).
enum class LayerSplit : std::uint8_t { uniform, balanced, by_time, by_memory, list };

// How the layers of a network with parallel branches are placed, whichever order they stand in: so
// that the predicted step, or the fullest stage, is least; or as given.
enum class BranchPlacement : std::uint8_t { by_time, by_memory, given };

// Names of layers; in them * stands for any text.
struct StageLayers {
  std::vector<std::string> layers;
};

struct Branches {
  BranchPlacement placed = BranchPlacement::by_time;
  std::vector<StageLayers> stages{};  // BranchPlacement::given
};

struct Pipeline {
  std::string schedule = "1f1b";  // a name of schedules() (sim/schedule/schedule.h), or "custom"
  schedule::CustomSchedule custom{};  // if it is
  Option<int> chunks =
      depends(1);              // virtual stages per stage; a scenario: as the schedule has them
  Option<int> group_size = 0;  // PipelineShape::group
  LayerSplit layer_split = LayerSplit::uniform;
  std::vector<int> layers_per_chunk{};  // LayerSplit::list: [chunk * stages + stage]
  std::optional<Branches> branches{};   // none: stages cut the layers in their order
  bool overlap_p2p = true;  // false: the compute stream waits for its sends, as blocking calls do
  bool overlap_passes = false;  // PipelineShape::paired
  // Each tensor-parallel rank sends its part of a message, and the receivers gather them. Without,
  // every rank sends the whole, as today's Megatron-LM does. With sequence parallelism ranks have
  // no more than their part. Source: Narayanan et al., SC 2021, section 4.1 (scatter/gather).
  bool scatter_gather = false;
};

}  // namespace trainyard::recipe
