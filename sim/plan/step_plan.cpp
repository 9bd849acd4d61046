#include "sim/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "sim/base/check.h"
#include "sim/plan/data_parallel_writer.h"
#include "sim/plan/program_builder.h"

namespace trainyard {
namespace {

// Builds the program of one stage, block by block.
class StageBuilder {
 public:
  StageBuilder(StepPlan& step, const NetworkWork& work, const TrainingRecipe& recipe,
               const ParallelPlan& plan, int stage)
      : step_(step),
        work_(work),
        recipe_(recipe),
        plan_(plan),
        stage_(stage),
        builder_(step),
        data_(builder_, step, work, recipe, plan) {}

  StageProgram build(const std::vector<Slot>& order);

 private:
  const LayerWork& layer(int place) const {
    return work_.kinds[static_cast<std::size_t>(work_.chain[static_cast<std::size_t>(place)])];
  }
  ChainRange range(int chunk) const {
    return step_.layers[static_cast<std::size_t>(chunk * step_.shape.stages + stage_)];
  }
  bool is_first(int chunk) const { return chunk == 0 && stage_ == 0; }
  bool is_last(int chunk) const {
    return chunk == step_.shape.chunks - 1 && stage_ == step_.shape.stages - 1;
  }
  // What crosses a stage boundary after `place`. Each tensor-parallel rank sends its part of it.
  Bytes message_after(int place) const {
    const std::int64_t parts = plan_.degrees.tensor;
    return Bytes((layer(place).output.count() + parts - 1) / parts);
  }

  std::int64_t stage_parameters() const;
  std::uint32_t forward_block(int chunk, PassRole role);
  std::uint32_t backward_block(int chunk, PassRole role);
  std::uint32_t step_block(std::int64_t parameters);
  void wait_for_sends();

  StepPlan& step_;
  const NetworkWork& work_;
  const TrainingRecipe& recipe_;
  const ParallelPlan& plan_;
  int stage_;
  ProgramBuilder builder_;
  DataParallelWriter data_;
};

std::int64_t StageBuilder::stage_parameters() const {
  std::int64_t parameters = 0;
  for (int chunk = 0; chunk < step_.shape.chunks; ++chunk) {
    for (int place = range(chunk).first; place < range(chunk).last; ++place) {
      parameters += layer(place).parameters;
      // A tied output matrix on the embedding's own rank is the same memory.
      if (step_.shape.stages == 1) parameters -= layer(place).tied_parameters;
    }
  }
  return parameters;
}

void StageBuilder::wait_for_sends() {
  if (plan_.overlap_p2p || step_.shape.stages == 1) return;
  builder_.compute_waits_for(static_cast<StreamSet>(stream_bit(StreamKind::send_forward) |
                                                    stream_bit(StreamKind::send_backward)));
}

std::uint32_t StageBuilder::forward_block(int chunk, PassRole role) {
  const auto [first, last] = range(chunk);
  builder_.begin_block();
  wait_for_sends();
  data_.begin(Pass::forward, range(chunk), role);
  if (!is_first(chunk))
    builder_.receive(ChannelPort::from_previous, message_after(first - 1), "receive activations");
  for (int place = first; place < last; ++place) {
    data_.before(place);
    builder_.hold(MemoryKind::activations, layer(place).activations, place_name(work_, place));
    builder_.work(layer(place).forward, place_name(work_, place) + " forward", OpGroup::compute);
    data_.after(place);
  }
  data_.end();
  if (!is_last(chunk))
    builder_.send(ChannelPort::to_next, message_after(last - 1), "send activations");
  return builder_.end_block();
}

std::uint32_t StageBuilder::backward_block(int chunk, PassRole role) {
  const auto [first, last] = range(chunk);
  builder_.begin_block();
  wait_for_sends();
  data_.begin(Pass::backward, range(chunk), role);
  if (!is_last(chunk))
    builder_.receive(ChannelPort::from_next, message_after(last - 1), "receive gradients");
  for (int place = last - 1; place >= first; --place) {
    const LayerWork& work = layer(place);
    const std::string name = place_name(work_, place);
    data_.before(place);
    builder_.hold(MemoryKind::workspace, work.workspace, name);
    builder_.work(work.recompute, name + " recompute", OpGroup::compute);
    builder_.work(work.backward, name + " backward", OpGroup::compute);
    builder_.release(MemoryKind::workspace, work.workspace, name);
    builder_.release(MemoryKind::activations, work.activations, name);
    data_.after(place);
  }
  data_.end();
  if (!is_first(chunk))
    builder_.send(ChannelPort::to_previous, message_after(first - 1), "send gradients");
  return builder_.end_block();
}

std::uint32_t StageBuilder::step_block(std::int64_t parameters) {
  builder_.begin_block();
  wait_for_sends();
  data_.step(parameters);
  return builder_.end_block();
}

StageProgram StageBuilder::build(const std::vector<Slot>& order) {
  StageProgram stage;
  stage.parameters = stage_parameters();
  data_.hold_states(stage.parameters);

  // Blocks are written when they are first called, so that buckets are numbered in the order in
  // which they leave.
  std::map<std::tuple<Pass, int, PassRole>, std::uint32_t> blocks;
  const auto add_call = [&](std::uint32_t block, const CallInfo& info) {
    builder_.call(block, static_cast<std::uint32_t>(info.microbatch));
    stage.calls.push_back(info);
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Slot& slot = order[i];
    TRAINYARD_CHECK(slot.pass == Pass::forward || slot.pass == Pass::backward,
                    "a split backward has no program yet");
    const bool forward = slot.pass == Pass::forward;
    const PassRole role = data_.role(order, i);
    const auto [block, is_new] = blocks.try_emplace({slot.pass, slot.chunk, role});
    if (is_new)
      block->second = forward ? forward_block(slot.chunk, role) : backward_block(slot.chunk, role);
    add_call(block->second,
             {forward ? CallKind::forward : CallKind::backward, slot.microbatch, slot.chunk});
  }
  add_call(step_block(stage.parameters), {CallKind::step, 0, 0});
  stage.program = builder_.finish();
  return stage;
}

}  // namespace

StreamKind stream_of(CollectivePort port) {
  switch (port) {
    case CollectivePort::tensor: return StreamKind::tensor;
    case CollectivePort::context: return StreamKind::context;
    case CollectivePort::data:
    case CollectivePort::norm: return StreamKind::data;
    case CollectivePort::replica: return StreamKind::replica;
  }
  TRAINYARD_CHECK(false, "collective port {}", static_cast<int>(port));
  return StreamKind::tensor;
}

OpGroup group_of(CollectivePort port) {
  switch (port) {
    case CollectivePort::tensor: return OpGroup::tensor;
    case CollectivePort::context: return OpGroup::context;
    case CollectivePort::data:
    case CollectivePort::replica:
    case CollectivePort::norm: return OpGroup::data;
  }
  TRAINYARD_CHECK(false, "collective port {}", static_cast<int>(port));
  return OpGroup::tensor;
}

int microbatches(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  return static_cast<int>(recipe.global_batch / (plan.degrees.data * recipe.micro_batch));
}

Execution execution(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  return {.micro_batch = recipe.micro_batch,
          .sequence_length = recipe.sequence_length,
          .tensor = plan.degrees.tensor,
          .context = plan.degrees.context,
          .context_method = plan.context_method,
          .sequence_parallel = plan.sequence_parallel,
          .recompute = recipe.recompute,
          .fused_attention = recipe.fused_attention,
          .tensor_overlap = plan.tensor_overlap,
          .compute = recipe.compute};
}

StepPlan plan_step(const NetworkWork& work, const TrainingRecipe& recipe,
                   const ParallelPlan& plan) {
  StepPlan step;
  step.shape = {.stages = plan.degrees.pipeline,
                .microbatches = microbatches(recipe, plan),
                .chunks = plan.chunks};
  const ScheduleEntry* schedule = find_schedule(plan.schedule);
  TRAINYARD_CHECK(schedule != nullptr, "unknown schedule {}", plan.schedule);
  TRAINYARD_CHECK(!schedule->unsupported(step.shape), "schedule {} does not support this shape",
                  plan.schedule);
  step.layers = split_layers(work, step.shape, plan.layer_split, plan.layers_per_chunk);

  const DataParallelStrategy strategy = strategy_of(plan, recipe);
  if (strategy.replicas > 1) step.shard_ranks = plan.degrees.replicas() / strategy.replicas;
  step.gradients_sharded = strategy.optimizer_shards > 1;

  for (int stage = 0; stage < step.shape.stages; ++stage) {
    StageBuilder builder(step, work, recipe, plan, stage);
    step.stages.push_back(builder.build(schedule->build(step.shape, stage)));
  }

  Flops forward, recomputed;
  for (const int kind : work.chain) {
    forward = forward + work.kinds[static_cast<std::size_t>(kind)].forward_model_flops;
    recomputed = recomputed + work.kinds[static_cast<std::size_t>(kind)].recompute_model_flops;
  }
  const double passes = static_cast<double>(step.shape.microbatches) * plan.degrees.data;
  step.model_flops = 3 * passes * forward;
  step.executed_flops = step.model_flops + passes * recomputed;
  return step;
}

}  // namespace trainyard
