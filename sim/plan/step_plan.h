// One training step as rank programs: the schedule's passes filled with the network's kernels, the
// collectives of tensor and data parallelism, the messages of the pipeline, and the memory they
// hold.
//
// All ranks of a stage run the same program. Kernels and transfers appear as indices into the
// tables of its cast; the lowering gives them times.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/network.h"
#include "sim/engine/program.h"
#include "sim/plan/cast.h"
#include "sim/plan/split/stage_split.h"
#include "sim/recipe/recipe.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// Steps that programs hold one after another without a flush, and which of them is what a step
// takes: from the end of the one before to its own. One if the pipeline is flushed.
struct Rounds {
  int count = 1, measured = 0;
  // Each is a step with its flush, and those from `measured` on are reported, on average, but for
  // the last `after`.
  bool whole = false;
  int after = 0;
  // Ranks do not end them together: from the first rank's end of the one before `measured`, or from
  // when each has ended one, to the first one's end of the last, per step that a rank has ended in
  // between.
  bool apart = false;
  // Apart, but the steps are the first rank's: others that are late take no part in them.
  bool of_first = false;
};

// What stands behind the name of a place whose micro-batch does not run again.
inline constexpr const char* kNotRunAgain = ", not run again";

// What a place of the chain keeps of one micro-batch, by Role::batch; `owner` as
// MemoryEffect::owner names it.
struct KeptByPlace {
  std::string owner;
  std::vector<models::Activations> kept{};
};

// Replicas that compute micro-batches of different sizes.
struct Batches {
  std::vector<std::int64_t> sizes;         // distinct; the first is that of plan_step's `work`
  std::vector<int> of_replica;             // by data coordinate: which of them
  std::vector<models::NetworkWork> works;  // of the sizes after the first
};

struct StepPlan {
  schedule::PipelineShape shape;
  Rounds rounds;
  std::vector<ChainRange> layers;         // by virtual stage
  std::vector<KeptByPlace> kept;          // by place of the chain
  std::vector<KeptByPlace> kept_whole;    // the same of micro-batches that do not run again
  std::vector<std::int64_t> batch_sizes;  // Batches::sizes; empty: all replicas compute the same
  // Its first roles are the stages, where one rank leads its replicas those as it plays them, and
  // after them the stages with each further size of micro-batches.
  Cast cast;
  // Of one step over all ranks: without recomputation and what attention masks leave out; without
  // recomputation; with what recomputation repeats of the first.
  Flops model_flops, full_square_flops, executed_flops;
  double counted = 1;  // part of its samples whose gradients are used, as the first two count

  // What reports call a place of the chain.
  const std::string& name_of(int place) const {
    return kept[static_cast<std::size_t>(place)].owner;
  }
};

// Micro-batches per replica and step: global_batch / (data * micro_batch).
int microbatches(const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan);

// How each layer of the plan is executed.
models::Execution execution(const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan);

// The steps that programs of a plan hold. Requires: as plan_step.
Rounds rounds_of(const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan);

// Whether stages that differ in which layers they hold alone have their blocks written once, or
// each for itself, which gives the same programs.
enum class StageBlocks : std::uint8_t { shared, written_each };

// Requires: degrees that divide what they must (sim/scenario validates), a known schedule that
// supports the shape. `work` is network_work(network, execution(recipe, plan)). Schedules that need
// times find them in `inputs`; `gpus`: of split_layers (split/stage_split.h). `batches`: null where
// all replicas compute the same; else all ranks update their parameters on their GPUs by one
// program.
StepPlan plan_step(const models::NetworkWork& work, const recipe::TrainingRecipe& recipe,
                   const recipe::ParallelPlan& plan, const schedule::ScheduleInputs& inputs = {},
                   std::span<const StageGpus> gpus = {}, const Batches* batches = nullptr,
                   StageBlocks blocks = StageBlocks::shared);

// The shape of a plan's pipeline. Requires: a known schedule.
schedule::PipelineShape pipeline_shape(const recipe::TrainingRecipe& recipe,
                                       const recipe::ParallelPlan& plan);

}  // namespace trainyard::plan
