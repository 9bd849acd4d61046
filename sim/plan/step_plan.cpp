#include "sim/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "sim/base/check.h"
#include "sim/plan/acts.h"
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
               const ParallelPlan& plan, PipelineMessages& messages, int stage,
               const ScheduleEntry* schedule)
      : step_(step),
        work_(work),
        recipe_(recipe),
        plan_(plan),
        messages_(messages),
        stage_(stage),
        updates_(schedule == nullptr ? Updates::after_all : schedule->updates),
        versions_(schedule == nullptr ? 1 : weight_versions(*schedule, step.shape, stage)),
        builder_(step),
        buckets_(plan.first_bucket_size, plan.bucket_size),
        expert_buckets_(plan.first_bucket_size, plan.bucket_size) {}

  StageProgram build(const std::vector<Slot>& order);

 private:
  // Passes that run the same block: of the same part of the stage, with the same messages before.
  struct BlockKey {
    CallKind kind = CallKind::forward;
    Seat seat = {}, backward_seat = {};  // the second of a pair
    bool reducing = false;
    std::vector<PipelineMessage> receives = {};
    auto operator<=>(const BlockKey&) const = default;
  };

  const LayerWork& layer(int place) const {
    return work_.kinds[static_cast<std::size_t>(work_.chain[static_cast<std::size_t>(place)])];
  }
  ChainRange range(const Seat& seat) const {
    return step_.layers[static_cast<std::size_t>(virtual_stage(step_.shape, seat))];
  }
  Seat seat_of(const Slot& slot) const { return {stage_, slot.chunk, slot.direction}; }
  // What crosses a boundary of virtual stages. Each tensor-parallel rank sends its part of it.
  Bytes message_bytes(const PipelineMessage& message) const {
    const int place = step_.layers[static_cast<std::size_t>(message.boundary)].last - 1;
    const std::int64_t parts = plan_.degrees.tensor;
    return Bytes((layer(place).output.count() + parts - 1) / parts);
  }
  bool reduces() const {
    return plan_.degrees.data * plan_.degrees.context * directions(step_.shape) > 1;
  }
  bool reduces_experts() const { return plan_.expert_replicas() * directions(step_.shape) > 1; }
  bool exchanges_gradients() const { return reduces() || reduces_experts(); }
  // Copies of the network finish at different times on the ranks that share gradients: they are
  // reduced after the last backward, in an order on which all agree.
  bool reduces_in_backward() const {
    return exchanges_gradients() && plan_.overlap_backward && directions(step_.shape) == 1;
  }
  // PyTorch frees gradients after the step (zero_grad's set_to_none) and allocates them layer by
  // layer in the backward pass. With more micro-batches they stay from the first one on, and DDP's
  // buckets hold them always.
  bool gradients_come_and_go() const {
    return recipe_.fusion != Fusion::by_hand && step_.shape.microbatches == 1 && !reduces() &&
           updates_ == Updates::after_all;
  }
  // Of the layer at `place`; a tied output matrix on the embedding's own rank is the same memory.
  std::int64_t parameters_at(int place) const {
    const bool shares_embedding = seat(step_.shape, virtual_stages(step_.shape) - 1, 0).stage ==
                                  seat(step_.shape, 0, 0).stage;
    return layer(place).parameters - (shares_embedding ? layer(place).tied_parameters : 0);
  }

  std::vector<Seat> seats() const;
  std::int64_t stage_parameters() const;
  std::int64_t stage_expert_parameters() const;
  void hold_states(std::int64_t parameters);
  std::vector<Act> forward_acts(int place) const;
  std::vector<Act> backward_acts(CallKind kind, int place) const;
  std::uint32_t write_block(const BlockKey& key);
  void write_forward(const Seat& seat);
  void write_backward(CallKind kind, const Seat& seat, bool reducing);
  void write_pair(const Seat& forward, const Seat& backward, bool reducing);
  void receive(const PipelineMessage& message);
  void send(const Seat& seat, Pass pass);
  std::uint32_t step_block(std::int64_t parameters);
  void update(StageProgram& stage);
  std::vector<bool> completing(const std::vector<Slot>& order) const;
  void reduce(const std::vector<Bytes>& buckets, CollectivePort port = CollectivePort::data);
  void reduce_layer(const LayerWork& work);
  void reduce_rest();
  void reduce_part(const Seat& seat);
  void reduce_everything();
  void wait_for_sends();

  StepPlan& step_;
  const NetworkWork& work_;
  const TrainingRecipe& recipe_;
  const ParallelPlan& plan_;
  PipelineMessages& messages_;
  int stage_;
  Updates updates_;
  int versions_;  // of the weights
  ProgramBuilder builder_;
  GradientBuckets buckets_, expert_buckets_;
  int buckets_sent_ = 0;
  std::optional<std::uint32_t> step_block_;
};

CallKind call_kind(const Slot& slot) {
  if (slot.paired) return CallKind::pair;
  switch (slot.pass) {
    case Pass::forward: return CallKind::forward;
    case Pass::backward: return CallKind::backward;
    case Pass::backward_input: return CallKind::backward_input;
    case Pass::backward_weight: return CallKind::backward_weight;
  }
  return CallKind::forward;
}

std::vector<Seat> StageBuilder::seats() const {
  std::vector<Seat> all;
  for (std::uint8_t direction = 0; direction < directions(step_.shape); ++direction)
    for (int chunk = 0; chunk < step_.shape.chunks; ++chunk)
      all.push_back({stage_, chunk, direction});
  return all;
}

std::int64_t StageBuilder::stage_parameters() const {
  std::int64_t parameters = 0;
  for (const Seat& seat : seats()) {
    for (int place = range(seat).first; place < range(seat).last; ++place)
      parameters += parameters_at(place);
  }
  return parameters;
}

std::int64_t StageBuilder::stage_expert_parameters() const {
  std::int64_t parameters = 0;
  for (const Seat& seat : seats()) {
    for (int place = range(seat).first; place < range(seat).last; ++place)
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
  builder_.resident(MemoryKind::parameters, (versions_ - 1) * states.parameters,
                    "older versions of the parameters");
}

void StageBuilder::wait_for_sends() {
  if (plan_.overlap_p2p || step_.shape.stages == 1) return;
  for (const StreamKind sends : {StreamKind::send_forward, StreamKind::send_backward})
    builder_.compute_waits_for(stream_bit(sends));
  if (step_.shape.placement == Placement::looped) return;
  for (const StreamKind sends : {StreamKind::send_forward_up, StreamKind::send_backward_up})
    builder_.compute_waits_for(stream_bit(sends));
}

void StageBuilder::receive(const PipelineMessage& message) {
  const bool activations =
      message.port == ChannelPort::from_previous || message.port == ChannelPort::up_from_next;
  builder_.receive(message.port, message_bytes(message),
                   activations ? "receive activations" : "receive gradients");
}

void StageBuilder::send(const Seat& seat, Pass pass) {
  const auto message = messages_.sent(stage_, {pass, 0, seat.chunk, seat.direction});
  if (!message) return;
  builder_.send(message->port, message_bytes(*message),
                pass == Pass::forward ? "send activations" : "send gradients");
}

std::vector<Act> StageBuilder::forward_acts(int place) const {
  const std::string name = place_name(work_, place);
  return {Hold{MemoryKind::activations, layer(place).activations, name},
          Work{layer(place).forward, name + " forward"}};
}

// Weight gradients need the inputs of matrix multiplications: activations stay until they are done,
// and so does what full recomputation has restored. Selective recomputation restores the
// attention's scores, which only the gradients of inputs need.
std::vector<Act> StageBuilder::backward_acts(CallKind kind, int place) const {
  const LayerWork& work = layer(place);
  const std::string name = place_name(work_, place);
  const Release workspace{MemoryKind::workspace, work.workspace, name};
  const bool restores_inputs = !work.recompute.empty();
  std::vector<Act> acts;
  if (kind != CallKind::backward_weight)
    acts.emplace_back(Hold{MemoryKind::workspace, work.workspace, name});
  if (kind != CallKind::backward_input && gradients_come_and_go())
    acts.emplace_back(Hold{MemoryKind::gradients,
                           state_bytes(parameters_at(place), recipe_).gradients, kGradients});
  if (kind != CallKind::backward_weight)
    acts.emplace_back(Work{work.recompute, name + " recompute"});
  if (kind == CallKind::backward_input) {
    acts.emplace_back(Work{input_half(work.backward), name + " backward"});
    if (!restores_inputs) acts.emplace_back(workspace);
    return acts;
  }
  acts.emplace_back(
      Work{kind == CallKind::backward_weight ? weight_half(work.backward) : work.backward,
           name + " backward"});
  acts.emplace_back(
      Work{accumulation_work(parameters_at(place), recipe_, step_.shape.microbatches > 1),
           name + " backward"});
  if (kind == CallKind::backward || restores_inputs) acts.emplace_back(workspace);
  acts.emplace_back(Release{MemoryKind::activations, work.activations, name});
  return acts;
}

void StageBuilder::write_forward(const Seat& seat) {
  for (int place = range(seat).first; place < range(seat).last; ++place)
    write(builder_, forward_acts(place));
  send(seat, Pass::forward);
}

void StageBuilder::write_backward(CallKind kind, const Seat& seat, bool reducing) {
  for (int place = range(seat).last - 1; place >= range(seat).first; --place) {
    write(builder_, backward_acts(kind, place));
    if (reducing) reduce_layer(layer(place));
  }
  if (kind == CallKind::backward_input) builder_.settle("input gradients");
  if (reducing) reduce_rest();
  if (kind != CallKind::backward_weight) send(seat, Pass::backward);
}

void StageBuilder::write_pair(const Seat& forward, const Seat& backward, bool reducing) {
  std::vector<Act> first, second;
  const auto append = [](std::vector<Act>& acts, const std::vector<Act>& more) {
    acts.insert(acts.end(), more.begin(), more.end());
  };
  for (int place = range(forward).first; place < range(forward).last; ++place)
    append(first, forward_acts(place));
  for (int place = range(backward).last - 1; place >= range(backward).first; --place)
    append(second, backward_acts(CallKind::backward, place));
  write_overlapped(builder_, first, second);
  if (reducing) reduce_part(backward);
  send(forward, Pass::forward);
  send(backward, Pass::backward);
}

std::uint32_t StageBuilder::write_block(const BlockKey& key) {
  builder_.begin_block();
  wait_for_sends();
  for (const PipelineMessage& message : key.receives)
    receive(message);
  switch (key.kind) {
    case CallKind::forward: write_forward(key.seat); break;
    case CallKind::backward:
    case CallKind::backward_input:
    case CallKind::backward_weight: write_backward(key.kind, key.seat, key.reducing); break;
    case CallKind::pair: write_pair(key.seat, key.backward_seat, key.reducing); break;
    case CallKind::step: TRAINYARD_CHECK(false, "a step has no slot");
  }
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

void StageBuilder::reduce_part(const Seat& seat) {
  for (int place = range(seat).last - 1; place >= range(seat).first; --place)
    reduce_layer(layer(place));
  reduce_rest();
}

// Copies of the network in the order of their virtual stages, which the ranks that share gradients
// (stage s and its mirror image) have in common.
void StageBuilder::reduce_everything() {
  if (directions(step_.shape) == 1) {
    if (reduces()) reduce(buckets_.add(stage_parameters() * size_of(recipe_.gradients)));
    if (reduces_experts()) {
      reduce(expert_buckets_.add(stage_expert_parameters() * size_of(recipe_.gradients)),
             CollectivePort::expert_data);
    }
    reduce_rest();
    return;
  }
  std::vector<Seat> own = seats();
  std::sort(own.begin(), own.end(), [&](const Seat& a, const Seat& b) {
    return virtual_stage(step_.shape, a) < virtual_stage(step_.shape, b);
  });
  for (const Seat& seat : own)
    reduce_part(seat);
}

std::uint32_t StageBuilder::step_block(std::int64_t parameters) {
  builder_.begin_block();
  wait_for_sends();
  if (exchanges_gradients() && !reduces_in_backward()) reduce_everything();
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

// Of each slot, whether the gradients of its part are complete after it and may be reduced.
std::vector<bool> StageBuilder::completing(const std::vector<Slot>& order) const {
  std::vector<bool> completes(order.size(), false);
  if (updates_ != Updates::after_all) {
    for (std::size_t i = 0; i < order.size(); ++i)
      completes[i] = ends_backward(order[i].pass) &&
                     (updates_ == Updates::every_microbatch ||
                      (order[i].microbatch + 1) % step_.shape.microbatches == 0);
    return completes;
  }
  std::vector<bool> seen(static_cast<std::size_t>(parts(step_.shape)), false);
  for (std::size_t i = order.size(); i-- > 0;) {
    const auto at = static_cast<std::size_t>(part(step_.shape, order[i]));
    if (!ends_backward(order[i].pass) || seen[at]) continue;
    completes[i] = seen[at] = true;
  }
  return completes;
}

void StageBuilder::update(StageProgram& stage) {
  if (!step_block_) step_block_ = step_block(stage.parameters);
  builder_.call(*step_block_, 0);
  stage.calls.push_back({.kind = CallKind::step});
}

StageProgram StageBuilder::build(const std::vector<Slot>& order) {
  StageProgram stage;
  stage.parameters = stage_parameters() + stage_expert_parameters();
  hold_states(stage.parameters);

  const std::vector<bool> completes = completing(order);

  // Blocks are written when they are first called, so that buckets are numbered in the order in
  // which they leave.
  std::map<BlockKey, std::uint32_t> blocks;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Slot& slot = order[i];
    BlockKey key{.kind = call_kind(slot), .seat = seat_of(slot)};
    CallInfo info{
        .kind = key.kind, .microbatch = slot.microbatch, .chunk = part(step_.shape, slot)};
    messages_.receive(stage_, slot, key.receives);
    if (slot.paired) {
      const Slot& backward = order[++i];
      key.backward_seat = seat_of(backward);
      messages_.receive(stage_, backward, key.receives);
      info.backward_microbatch = backward.microbatch;
      info.backward_chunk = part(step_.shape, backward);
    }
    // `i` is now the slot whose backward ends with this call, if one does.
    key.reducing = reduces_in_backward() && completes[i];
    auto block = blocks.find(key);
    if (block == blocks.end()) block = blocks.emplace(key, write_block(key)).first;
    builder_.call(block->second, static_cast<std::uint32_t>(slot.microbatch));
    stage.calls.push_back(info);
    if (updates_ == Updates::after_all || !completes[i]) continue;
    update(stage);
    if ((slot.microbatch + 1) % step_.shape.microbatches == 0)
      stage.round_calls.push_back(stage.calls.size());
  }
  if (updates_ == Updates::after_all) {
    update(stage);
    stage.round_calls.push_back(stage.calls.size());
  }
  stage.program = builder_.finish();
  return stage;
}

}  // namespace

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

namespace {

// Without a flush a step is one round of many: static orders become periodic, and four times the
// stages is well beyond that; after it come rounds enough that all stages are still at work.
Rounds rounds(const ScheduleEntry* schedule, const PipelineShape& shape) {
  if (schedule == nullptr || schedule->updates == Updates::after_all) return {};
  const auto that_hold = [&](int microbatches) {
    return (microbatches + shape.microbatches - 1) / shape.microbatches;
  };
  const int before = 1 + that_hold(4 * shape.stages);
  return {.count = before + 1 + that_hold(shape.stages), .measured = before};
}

}  // namespace

PipelineShape pipeline_shape(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  const int stages = plan.degrees.pipeline;
  if (plan.schedule == kCustomSchedule)
    return {.stages = stages,
            .microbatches = microbatches(recipe, plan),
            .chunks = plan.chunks,
            .placement = plan.custom.placement};
  const ScheduleEntry* schedule = find_schedule(plan.schedule);
  TRAINYARD_CHECK(schedule != nullptr, "unknown schedule {}", plan.schedule);
  return shape_of(*schedule, stages, microbatches(recipe, plan), plan.chunks);
}

StepPlan plan_step(const NetworkWork& work, const TrainingRecipe& recipe, const ParallelPlan& plan,
                   const ScheduleInputs& inputs) {
  StepPlan step;
  step.shape = pipeline_shape(recipe, plan);
  step.layers = split_layers(work, step.shape, plan.layer_split, plan.layers_per_chunk);

  const ScheduleEntry* schedule = find_schedule(plan.schedule);
  step.rounds = rounds(schedule, step.shape);
  PipelineShape all_rounds = step.shape;
  all_rounds.microbatches *= step.rounds.count;
  const StageOrders orders = schedule == nullptr ? custom_orders(plan.custom, step.shape)
                                                 : build_stages(*schedule, all_rounds, inputs);
  PipelineMessages messages(all_rounds, orders);
  for (int stage = 0; stage < step.shape.stages; ++stage) {
    StageBuilder builder(step, work, recipe, plan, messages, stage, schedule);
    step.stages.push_back(builder.build(orders[static_cast<std::size_t>(stage)]));
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
