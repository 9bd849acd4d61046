#include "sim/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "sim/base/check.h"
#include "sim/plan/input/batches.h"
#include "sim/plan/split/dealt_layers.h"
#include "sim/plan/stage/stage_builder.h"
#include "sim/plan/stage_connections.h"
#include "sim/recipe/stage_orders.h"

namespace trainyard::plan {

using recipe::Axis;
using recipe::ParallelPlan;
using recipe::TrainingRecipe;
using schedule::PipelineShape;
using schedule::ScheduleEntry;

int microbatches(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  return static_cast<int>(recipe.global_batch / (plan.degrees.data * recipe.micro_batch.size));
}

namespace {

// Transformer Engine's norms write what the next product reads only where the scale is known
// before: csrc/extensions/normalization.cpp.
models::Fp8Casts fp8_casts(const TrainingRecipe& recipe) {
  const recipe::Precision& precision = recipe.precision;
  const bool by_hand = recipe.kernels.fusion == models::Fusion::by_hand;
  const bool narrow = precision.parameters == models::Dtype::fp8;
  const bool whole = scaling_of(precision.scales()) == models::Scaling::tensor;
  return {.recipe = precision.scales(),
          .transposes = precision.fp8_transposes,
          .keeps_operands = precision.kept_fp8_inputs,
          .casts_weights = !precision.cached_fp8_weights && !narrow,
          .turns_weights = narrow && whole && precision.fp8_transposes,
          .norms_cast = by_hand && precision.scales() == models::Fp8Recipe::delayed};
}

}  // namespace

models::Execution execution(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  const bool sums = recipe.accumulation == recipe::Accumulation::product;
  return {.micro_batch = recipe.micro_batch,
          .tensor = plan.degrees.tensor,
          .context = plan.degrees.context,
          .replicas = plan.degrees.data,
          .tensor_parallel = plan.tensor_parallel,
          .context_parallel = plan.context_parallel,
          .experts = plan.experts,
          .recompute = recipe.recompute,
          .kernels = recipe.kernels,
          .finetune = recipe.finetune,
          .trains = !recipe.forward_only,
          .gradient_sums = sums ? std::optional(recipe.precision.gradients.value()) : std::nullopt,
          .compute = recipe.precision.compute,
          .autocast = recipe.precision.autocasts(),
          .fp8_inputs = recipe.precision.kept_fp8_inputs,
          .fp8_gates = recipe.precision.kept_fp8_gates,
          .fp8 = fp8_casts(recipe)};
}

namespace {

// Without a flush a step is one round of many: static orders become periodic, and four times the
// stages is well beyond that; after it come rounds enough that all stages are still at work.
Rounds unflushed(const ScheduleEntry* schedule, const PipelineShape& shape) {
  if (schedule == nullptr || schedule->updates == schedule::Updates::after_all) return {};
  const auto that_hold = [&](int microbatches) {
    return (microbatches + shape.microbatches - 1) / shape.microbatches;
  };
  const int before = 1 + that_hold(4 * shape.stages);
  return {.count = before + 1 + that_hold(shape.stages), .measured = before};
}

// Every rank plays its stage. Work of experts follows the rank's part of the experts, that of
// tables its place among the ranks that share them.
void assign_ranks(Cast& cast, const recipe::RankGrids& ranks, const ParallelPlan& plan,
                  const models::NetworkWork& work, const Batches* batches) {
  const std::vector<double>& tables = work.rank_load;
  for (int r = 0; r < ranks.dense.world_size(); ++r) {
    const auto rank = static_cast<Rank>(r);
    const auto replica = static_cast<std::size_t>(ranks.dense.coordinate(rank, Axis::data));
    const int batch = batches != nullptr ? batches->of_replica.at(replica) : 0;
    cast.role_of.push_back(static_cast<std::uint32_t>(
        batch * plan.degrees.pipeline + ranks.dense.coordinate(rank, Axis::pipeline)));
    if (!tables.empty())
      cast.loads.push_back(tables[replica]);
    else if (!plan.expert_load.empty())
      cast.loads.push_back(plan.expert_load[static_cast<std::size_t>(
          ranks.experts.coordinate(rank, Axis::context))]);
  }
}

// A lane on which no stage sends is none.
void connect_stages(StageConnections& connections, const PipelineShape& shape, bool forward_only) {
  for (const Lane lane : kAllLanes) {
    if (forward_only && carries_gradients(lane)) continue;
    for (int stage = 0; stage < shape.stages; ++stage) {
      if (!receiver(shape, lane, stage)) continue;
      connections.lane(lane);
      break;
    }
  }
}

// One step after the other.
void repeat(schedule::StageOrders& orders, int steps, int microbatches) {
  for (std::vector<schedule::Slot>& order : orders) {
    const std::vector<schedule::Slot> one = order;
    for (int step = 1; step < steps; ++step) {
      for (schedule::Slot slot : one) {
        slot.microbatch += step * microbatches;
        order.push_back(slot);
      }
    }
  }
}

// Forward passes in the order in which the schedule has them.
void drop_backward(schedule::StageOrders& orders) {
  for (std::vector<schedule::Slot>& order : orders) {
    std::erase_if(order,
                  [](const schedule::Slot& slot) { return slot.pass != schedule::Pass::forward; });
    for (schedule::Slot& slot : order)
      slot.paired = false;
  }
}

// Adds what each place keeps of a micro-batch of the next size.
void tell_kept(const models::NetworkWork& work, std::vector<KeptByPlace>& places) {
  for (std::size_t place = 0; place < places.size(); ++place)
    places[place].kept.push_back(work.kinds[static_cast<std::size_t>(work.chain[place])].kept);
}

// Adds those of so many passes of all stages.
void count_flops(const models::NetworkWork& work, const TrainingRecipe& recipe, double passes,
                 StepPlan& step) {
  Flops forward, recomputed, masked, skipped, skipped_masked;
  for (const int kind : work.chain) {
    const models::LayerWork& layer = work.kinds[static_cast<std::size_t>(kind)];
    forward = forward + layer.forward_model_flops;
    recomputed = recomputed + layer.recompute_model_flops - layer.recompute_masked_flops;
    masked = masked + layer.forward_masked_flops;
    skipped = skipped + layer.skipped_flops;
    skipped_masked = skipped_masked + layer.skipped_masked_flops;
  }
  if (recipe.forward_only) {
    skipped = 2 * forward;
    skipped_masked = 2 * masked;
  }
  const Flops full_square = passes * (3.0 * forward - skipped);
  const Flops model = full_square - passes * (3 * masked - skipped_masked);
  step.full_square_flops = step.full_square_flops + full_square;
  step.model_flops = step.model_flops + model;
  const bool is_whole = recipe.recompute.except_last;
  const double again =
      is_whole ? passes * (step.shape.microbatches - 1) / step.shape.microbatches : passes;
  step.executed_flops = step.executed_flops + model + again * recomputed;
}

// Whether what stages write depends on nothing but what StageLikeness says.
bool stages_may_be_alike(const StepPlan& step, const TrainingRecipe& recipe,
                         const ParallelPlan& plan) {
  const DataParallelStrategy strategy = strategy_of(plan, recipe);
  return step.shape.stages > 2 && directions(step.shape) == 1 && !step.rounds.apart &&
         !recipe.input && !plan.pipeline.branches && !strategy.has_leader() &&
         !strategy.updates_elsewhere && strategy.add_roles == nullptr &&
         plan.data_parallel.cycle_time.value() == Duration(0);
}

}  // namespace

PipelineShape pipeline_shape(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  const int stages = plan.degrees.pipeline;
  const ScheduleEntry* schedule = schedule::find_schedule(plan.pipeline.schedule);
  if (schedule == nullptr)
    return {.stages = stages,
            .microbatches = microbatches(recipe, plan),
            .chunks = plan.pipeline.chunks,
            .placement = plan.pipeline.custom.placement};
  PipelineShape shape =
      shape_of(*schedule, stages, microbatches(recipe, plan), plan.pipeline.chunks);
  shape.group = plan.pipeline.group_size;
  shape.paired = plan.pipeline.overlap_passes;
  return shape;
}

Rounds rounds_of(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  const PipelineShape shape = pipeline_shape(recipe, plan);
  const DataParallelStrategy strategy = strategy_of(plan, recipe);
  if (recipe.input) return input_rounds(*recipe.input, shape.microbatches);
  if (strategy.own_steps > 1)
    return {.count = strategy.own_steps,
            .measured = strategy.steps_before,
            .whole = true,
            .apart = true,
            .of_first = strategy.leaves_late};
  const Rounds rounds = unflushed(schedule::find_schedule(plan.pipeline.schedule), shape);
  if (rounds.count > 1 || recipe.steps == 1) return rounds;
  return {.count = recipe.steps, .measured = 1, .whole = true, .after = 1};
}

StepPlan plan_step(const models::NetworkWork& work, const TrainingRecipe& recipe,
                   const ParallelPlan& plan, const schedule::ScheduleInputs& inputs,
                   std::span<const StageGpus> gpus, const Batches* batches, StageBlocks blocks) {
  StepPlan step;
  step.shape = pipeline_shape(recipe, plan);
  const DataParallelStrategy strategy = strategy_of(plan, recipe);
  std::optional<models::NetworkWork> seen;
  if (strategy.has_leader()) seen = strategy.seen_by(work, plan, true);
  const models::NetworkWork& led = seen ? *seen : work;
  const DealtLayers layers(led, step.shape, recipe, plan, gpus);
  step.layers = layers.ranges();
  const DealtWork dealt = layers.deal(led);
  for (std::string& name : place_names(dealt.placed.work)) {
    if (recipe.recompute.except_last) step.kept_whole.push_back({name + kNotRunAgain});
    step.kept.push_back({std::move(name)});
  }

  const ScheduleEntry* schedule = schedule::find_schedule(plan.pipeline.schedule);
  step.rounds = rounds_of(recipe, plan);
  PipelineShape all_rounds = step.shape;
  all_rounds.microbatches *= step.rounds.count;
  const auto known = stage_orders(plan, step.rounds.whole ? step.shape : all_rounds, inputs);
  schedule::StageOrders changed;
  if (step.rounds.whole || recipe.forward_only) changed = *known;
  const schedule::StageOrders& orders = changed.empty() ? *known : changed;
  if (step.rounds.whole) repeat(changed, step.rounds.count, step.shape.microbatches);
  TRAINYARD_CHECK(orders.size() == static_cast<std::size_t>(step.shape.stages),
                  "{} orders for {} stages of {}", orders.size(), step.shape.stages,
                  plan.pipeline.schedule);
  if (recipe.forward_only) drop_backward(changed);
  PipelineMessages messages(all_rounds, orders, !plan.pipeline.branches);
  const recipe::RankGrids ranks = rank_grids(plan);
  assign_ranks(step.cast, ranks, plan, work, batches);
  StageConnections connections(step.cast, ranks, plan, step.shape, recipe.collective_call);
  if (step.shape.stages > 1 && !plan.pipeline.branches)
    connect_stages(connections, step.shape, recipe.forward_only);
  std::optional<InputBatches> input;
  if (recipe.input) {
    const int shards = plan.data_parallel.parameter_servers.shards;
    input.emplace(step, connections, recipe, ranks, strategy.updates_elsewhere ? shards : 0);
  }
  const bool may_be_alike =
      blocks == StageBlocks::shared && stages_may_be_alike(step, recipe, plan);
  // All stages with micro-batches of a size.
  const auto add_stages = [&](const DealtWork& own, int batch) {
    tell_kept(own.placed.work, step.kept);
    if (own.whole) tell_kept(own.whole->work, step.kept_whole);
    const auto replicas = batches == nullptr ? plan.degrees.data
                                             : std::count(batches->of_replica.begin(),
                                                          batches->of_replica.end(), batch);
    count_flops(own.placed.work, recipe,
                static_cast<double>(step.shape.microbatches) * static_cast<double>(replicas), step);
    StagePatterns patterns;
    for (int stage = 0; stage < step.shape.stages; ++stage) {
      const StageSide side{.stage = stage, .gpus = gpus.empty() ? nullptr : &gpus.front()};
      StageBuilder builder(step, own, recipe, plan, messages, connections, side, schedule,
                           input && stage == 0 ? &*input : nullptr);
      step.cast.roles.push_back(builder.build(orders[static_cast<std::size_t>(stage)],
                                              may_be_alike ? &patterns : nullptr));
      step.cast.roles.back().batch = batch;
    }
  };
  add_stages(dealt, 0);
  if (batches != nullptr) {
    step.batch_sizes = batches->sizes;
    int batch = 0;
    for (const models::NetworkWork& other : batches->works)
      add_stages(layers.deal(other), ++batch);
  }
  if (strategy.has_leader()) {
    const DealtWork followed = layers.deal(strategy.seen_by(work, plan, false));
    StageBuilder builder(step, followed, recipe, plan, messages, connections, {0, false}, schedule,
                         nullptr);
    const auto followers = static_cast<std::uint32_t>(step.cast.roles.size());
    step.cast.roles.push_back(builder.build(orders.front()));
    std::fill(step.cast.role_of.begin() + 1, step.cast.role_of.end(), followers);
  }
  if (strategy.add_roles != nullptr)
    strategy.add_roles(step, dealt.placed.work, connections, recipe, plan);
  if (input) input->add_roles();

  step.counted = strategy.counted;
  step.full_square_flops = step.counted * step.full_square_flops;
  step.model_flops = step.counted * step.model_flops;
  return step;
}

}  // namespace trainyard::plan
