#include "sim/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "sim/base/check.h"
#include "sim/plan/gradient_buckets.h"
#include "sim/plan/program_builder.h"
#include "sim/plan/step_memory.h"

namespace trainyard {
namespace {

constexpr const char* kGradients = "gradients";

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
        buckets_(plan.first_bucket_size, plan.bucket_size),
        expert_buckets_(plan.first_bucket_size, plan.bucket_size) {}

  StageProgram build(const std::vector<Slot>& order);

 private:
  struct ChunkBlocks {
    std::uint32_t forward = 0, backward = 0, reducing = 0;
  };

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
  bool reduces() const { return plan_.degrees.data * plan_.degrees.context > 1; }
  bool reduces_experts() const { return plan_.expert_replicas() > 1; }
  bool exchanges_gradients() const { return reduces() || reduces_experts(); }
  // PyTorch frees gradients after the step (zero_grad's set_to_none) and allocates them layer by
  // layer in the backward pass. With more micro-batches they stay from the first one on, and DDP's
  // buckets hold them always.
  bool gradients_come_and_go() const {
    return recipe_.fusion != Fusion::by_hand && step_.shape.microbatches == 1 && !reduces();
  }
  // Of the layer at `place`; a tied output matrix on the embedding's own rank is the same memory.
  std::int64_t parameters_at(int place) const {
    return layer(place).parameters - (step_.shape.stages == 1 ? layer(place).tied_parameters : 0);
  }

  std::int64_t stage_parameters() const;
  std::int64_t stage_expert_parameters() const;
  void hold_states(std::int64_t parameters);
  std::uint32_t forward_block(int chunk);
  std::uint32_t backward_block(int chunk, bool reducing);
  std::uint32_t step_block(std::int64_t parameters);
  void reduce(const std::vector<Bytes>& buckets, CollectivePort port = CollectivePort::data);
  void reduce_layer(const LayerWork& work);
  void reduce_rest();
  void wait_for_sends();

  StepPlan& step_;
  const NetworkWork& work_;
  const TrainingRecipe& recipe_;
  const ParallelPlan& plan_;
  int stage_;
  ProgramBuilder builder_;
  GradientBuckets buckets_, expert_buckets_;
  int buckets_sent_ = 0;
};

std::int64_t StageBuilder::stage_parameters() const {
  std::int64_t parameters = 0;
  for (int chunk = 0; chunk < step_.shape.chunks; ++chunk) {
    for (int place = range(chunk).first; place < range(chunk).last; ++place)
      parameters += parameters_at(place);
  }
  return parameters;
}

std::int64_t StageBuilder::stage_expert_parameters() const {
  std::int64_t parameters = 0;
  for (int chunk = 0; chunk < step_.shape.chunks; ++chunk) {
    for (int place = range(chunk).first; place < range(chunk).last; ++place)
      parameters += layer(place).expert_parameters;
  }
  return parameters;
}

void StageBuilder::hold_states(std::int64_t parameters) {
  const StateBytes states = state_bytes(parameters, recipe_);
  builder_.resident(MemoryKind::parameters, states.parameters, "parameters");
  if (!gradients_come_and_go())
    builder_.resident(MemoryKind::gradients, states.gradients, kGradients);
  builder_.resident(MemoryKind::optimizer_state, states.optimizer_state, "optimizer state");
}

void StageBuilder::wait_for_sends() {
  if (plan_.overlap_p2p || step_.shape.stages == 1) return;
  builder_.compute_waits_for(static_cast<StreamSet>(stream_bit(StreamKind::send_forward) |
                                                    stream_bit(StreamKind::send_backward)));
}

std::uint32_t StageBuilder::forward_block(int chunk) {
  const auto [first, last] = range(chunk);
  builder_.begin_block();
  wait_for_sends();
  if (!is_first(chunk))
    builder_.receive(ChannelPort::from_previous, message_after(first - 1), "receive activations");
  for (int place = first; place < last; ++place) {
    builder_.hold(MemoryKind::activations, layer(place).activations, place_name(work_, place));
    builder_.work(layer(place).forward, place_name(work_, place) + " forward", OpGroup::compute);
  }
  if (!is_last(chunk))
    builder_.send(ChannelPort::to_next, message_after(last - 1), "send activations");
  return builder_.end_block();
}

std::uint32_t StageBuilder::backward_block(int chunk, bool reducing) {
  const auto [first, last] = range(chunk);
  builder_.begin_block();
  wait_for_sends();
  if (!is_last(chunk))
    builder_.receive(ChannelPort::from_next, message_after(last - 1), "receive gradients");
  for (int place = last - 1; place >= first; --place) {
    const LayerWork& work = layer(place);
    const std::string name = place_name(work_, place);
    builder_.hold(MemoryKind::workspace, work.workspace, name);
    if (gradients_come_and_go()) {
      builder_.hold(MemoryKind::gradients, state_bytes(parameters_at(place), recipe_).gradients,
                    kGradients);
    }
    builder_.work(work.recompute, name + " recompute", OpGroup::compute);
    builder_.work(work.backward, name + " backward", OpGroup::compute);
    builder_.work(accumulation_work(parameters_at(place), recipe_, step_.shape.microbatches > 1),
                  name + " backward", OpGroup::compute);
    builder_.release(MemoryKind::workspace, work.workspace, name);
    builder_.release(MemoryKind::activations, work.activations, name);
    if (reducing) reduce_layer(work);
  }
  if (reducing) reduce_rest();
  if (!is_first(chunk))
    builder_.send(ChannelPort::to_previous, message_after(first - 1), "send gradients");
  return builder_.end_block();
}

void StageBuilder::reduce_layer(const LayerWork& work) {
  if (reduces()) reduce(buckets_.add(work.parameters * size_of(recipe_.gradients)));
  if (!reduces_experts()) return;
  reduce(expert_buckets_.add(work.expert_parameters * size_of(recipe_.gradients)),
         CollectivePort::expert_data);
}

void StageBuilder::reduce_rest() {
  if (reduces()) reduce(buckets_.flush());
  if (reduces_experts()) reduce(expert_buckets_.flush(), CollectivePort::expert_data);
}

void StageBuilder::reduce(const std::vector<Bytes>& buckets, CollectivePort port) {
  for (const Bytes bytes : buckets) {
    builder_.collective(port, {CollectiveKind::all_reduce, bytes},
                        fmt::format("all-reduce gradient bucket {}", buckets_sent_++));
  }
}

std::uint32_t StageBuilder::step_block(std::int64_t parameters) {
  builder_.begin_block();
  wait_for_sends();
  if (exchanges_gradients() && !plan_.overlap_backward) {
    if (reduces()) reduce(buckets_.add(stage_parameters() * size_of(recipe_.gradients)));
    if (reduces_experts()) {
      reduce(expert_buckets_.add(stage_expert_parameters() * size_of(recipe_.gradients)),
             CollectivePort::expert_data);
    }
    reduce_rest();
  }
  if (exchanges_gradients()) builder_.compute_waits_for(stream_bit(StreamKind::data));
  const Bytes workspace = optimizer_workspace(parameters, recipe_);
  builder_.hold(MemoryKind::workspace, workspace, "optimizer");
  builder_.work(optimizer_work(parameters, recipe_), "optimizer", OpGroup::optimizer);
  builder_.release(MemoryKind::workspace, workspace, "optimizer");
  if (gradients_come_and_go()) {
    builder_.release(MemoryKind::gradients, state_bytes(parameters, recipe_).gradients, kGradients);
  }
  return builder_.end_block();
}

StageProgram StageBuilder::build(const std::vector<Slot>& order) {
  StageProgram stage;
  stage.parameters = stage_parameters() + stage_expert_parameters();
  hold_states(stage.parameters);

  // Gradients are complete, and may be reduced, in the last backward of each chunk.
  std::vector<std::size_t> last_backward(static_cast<std::size_t>(step_.shape.chunks));
  for (std::size_t i = 0; i < order.size(); ++i) {
    TRAINYARD_CHECK(order[i].pass == Pass::forward || order[i].pass == Pass::backward,
                    "a split backward has no program yet");
    if (order[i].pass == Pass::backward)
      last_backward[static_cast<std::size_t>(order[i].chunk)] = i;
  }

  // Blocks are written when they are first called, so that buckets are numbered in the order in
  // which they leave.
  constexpr std::uint32_t kUnwritten = ~0U;
  std::vector<ChunkBlocks> blocks(static_cast<std::size_t>(step_.shape.chunks),
                                  {kUnwritten, kUnwritten, kUnwritten});
  const auto add_call = [&](std::uint32_t block, const CallInfo& info) {
    builder_.call(block, static_cast<std::uint32_t>(info.microbatch));
    stage.calls.push_back(info);
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Slot& slot = order[i];
    ChunkBlocks& chunk = blocks[static_cast<std::size_t>(slot.chunk)];
    if (slot.pass == Pass::forward) {
      if (chunk.forward == kUnwritten) chunk.forward = forward_block(slot.chunk);
      add_call(chunk.forward, {CallKind::forward, slot.microbatch, slot.chunk});
      continue;
    }
    const bool reducing = exchanges_gradients() && plan_.overlap_backward &&
                          last_backward[static_cast<std::size_t>(slot.chunk)] == i;
    std::uint32_t& block = reducing ? chunk.reducing : chunk.backward;
    if (block == kUnwritten) block = backward_block(slot.chunk, reducing);
    add_call(block, {CallKind::backward, slot.microbatch, slot.chunk});
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
    case CollectivePort::expert:
    case CollectivePort::expert_tensor: return StreamKind::expert;
    case CollectivePort::data:
    case CollectivePort::expert_data: return StreamKind::data;
  }
  TRAINYARD_CHECK(false, "collective port {}", static_cast<int>(port));
  return StreamKind::tensor;
}

OpGroup group_of(CollectivePort port) {
  switch (port) {
    case CollectivePort::tensor: return OpGroup::tensor;
    case CollectivePort::context: return OpGroup::context;
    case CollectivePort::expert:
    case CollectivePort::expert_tensor: return OpGroup::expert;
    case CollectivePort::data:
    case CollectivePort::expert_data: return OpGroup::data;
  }
  TRAINYARD_CHECK(false, "collective port {}", static_cast<int>(port));
  return OpGroup::tensor;
}

namespace {

std::vector<std::vector<Rank>> groups_along(const RankMap& ranks, Axis axis) {
  std::vector<std::vector<Rank>> groups;
  if (ranks.size(axis) == 1) return groups;
  for (int g = 0; g < ranks.groups(axis); ++g)
    groups.push_back(ranks.group(ranks.first_of_group(g, axis), axis));
  return groups;
}

}  // namespace

std::vector<std::vector<Rank>> groups_of(const RankGrids& ranks, CollectivePort port) {
  switch (port) {
    case CollectivePort::tensor: return groups_along(ranks.dense, Axis::tensor);
    case CollectivePort::context: return groups_along(ranks.dense, Axis::context);
    case CollectivePort::expert: return groups_along(ranks.experts, Axis::context);
    case CollectivePort::expert_tensor: return groups_along(ranks.experts, Axis::tensor);
    case CollectivePort::expert_data: return groups_along(ranks.experts, Axis::data);
    case CollectivePort::data: break;
  }
  const RankMap& map = ranks.dense;
  if (map.size(Axis::context) == 1) return groups_along(map, Axis::data);
  std::vector<std::vector<Rank>> groups;
  for (int g = 0; g < map.groups(Axis::data); ++g) {
    const Rank first = map.first_of_group(g, Axis::data);
    if (map.coordinate(first, Axis::context) == 0)
      groups.push_back(map.group(first, Axis::data, Axis::context));
  }
  return groups;
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
          .expert = plan.expert,
          .expert_tensor = plan.expert_tensor,
          .capacity = plan.capacity,
          .sequence_parallel = plan.sequence_parallel,
          .recompute = recipe.recompute,
          .fused_attention = recipe.fused_attention,
          .tensor_overlap = plan.tensor_overlap,
          .compute = recipe.compute,
          .fusion = recipe.fusion};
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
