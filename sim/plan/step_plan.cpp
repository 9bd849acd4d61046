#include "sim/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "sim/base/check.h"
#include "sim/plan/activation_offload.h"
#include "sim/plan/acts.h"
#include "sim/plan/data_parallel_writer.h"
#include "sim/plan/program_builder.h"
#include "sim/plan/recompute_places.h"
#include "sim/plan/step_memory.h"
#include "sim/plan/tied_matrix.h"

namespace trainyard {
namespace {

constexpr const char* kGradients = "gradients";

// Builds the program of one stage, block by block.
class StageBuilder {
 public:
  StageBuilder(StepPlan& step, const RecomputePlaces& placed, const TrainingRecipe& recipe,
               const ParallelPlan& plan, PipelineMessages& messages, int stage,
               const ScheduleEntry* schedule)
      : step_(step),
        work_(placed.work),
        again_(placed.again),
        recipe_(recipe),
        plan_(plan),
        messages_(messages),
        stage_(stage),
        updates_(schedule == nullptr ? Updates::after_all : schedule->updates),
        versions_(schedule == nullptr ? 1 : weight_versions(*schedule, step.shape, stage)),
        builder_(step),
        data_(builder_, step, work_, recipe, plan, updates_ == Updates::after_all),
        offload_(builder_, work_, recipe.offload) {}

  StageProgram build(const std::vector<Slot>& order);

 private:
  // Passes that run the same block: of the same part of the stage, with the same messages before.
  struct BlockKey {
    CallKind kind = CallKind::forward;
    Seat seat = {}, backward_seat = {};  // the second of a pair
    PassRole role = {}, backward_role = {};
    std::vector<PipelineMessage> receives = {};
    bool fetched = false;                 // its first offloaded activations, by the pass before
    std::optional<Seat> then_fetch = {};  // the first ones of the backward pass after it
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

  // Of the layer at `place`; of a tied matrix a rank has one, whichever of its places use it.
  std::int64_t parameters_at(int place) const {
    return layer(place).parameters - tied_with_earlier(step_, work_, place);
  }
  // What earlier places pass on through a stage that begins at `place`.
  Bytes carried_to(int place) const {
    const bool begins = std::any_of(step_.layers.begin(), step_.layers.end(),
                                    [&](const ChainRange& range) { return range.first == place; });
    return begins && place > 0 ? layer(place - 1).passed_on : Bytes(0);
  }

  std::vector<Seat> seats() const;
  StageParameters stage_parameters() const;
  void hold_tables(StageProgram& stage);
  Bytes shared_buffers() const;
  std::vector<Act> forward_acts(int place) const;
  std::vector<Act> backward_acts(CallKind kind, int place) const;
  std::uint32_t write_block(const BlockKey& key);
  void write_forward(const BlockKey& key);
  void write_backward(const BlockKey& key);
  void write_pair(const BlockKey& key);
  void receive(const PipelineMessage& message);
  void send(const Seat& seat, Pass pass);
  std::uint32_t step_block(const StageParameters& parameters);
  void update(StageProgram& stage, const StageParameters& parameters);
  std::vector<bool> completing(const std::vector<Slot>& order) const;
  std::vector<ChainRange> copies() const;
  std::optional<Seat> fetches_for(const std::vector<Slot>& order, std::size_t at) const;
  std::optional<ChainRange> range(const std::optional<Seat>& seat) const {
    return seat ? std::optional(range(*seat)) : std::nullopt;
  }
  void wait_for_sends();

  StepPlan& step_;
  const NetworkWork& work_;
  const std::vector<ChainRange>& again_;  // RecomputePlaces::again
  const TrainingRecipe& recipe_;
  const ParallelPlan& plan_;
  PipelineMessages& messages_;
  int stage_;
  Updates updates_;
  int versions_;  // of the weights
  ProgramBuilder builder_;
  DataParallelWriter data_;
  ActivationOffload offload_;
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

StageParameters StageBuilder::stage_parameters() const {
  StageParameters parameters;
  for (const Seat& seat : seats()) {
    for (int place = range(seat).first; place < range(seat).last; ++place) {
      parameters.dense += parameters_at(place);
      parameters.experts += layer(place).expert_parameters;
      parameters.fp8_copies = parameters.fp8_copies + fp8_copies(layer(place).forward, recipe_);
      const std::vector<WeightMatrix> matrices = own_matrices(step_, work_, place);
      parameters.matrices.insert(parameters.matrices.end(), matrices.begin(), matrices.end());
    }
  }
  return parameters;
}

Bytes StageBuilder::shared_buffers() const {
  Bytes most;
  for (const Seat& seat : seats())
    for (int place = range(seat).first; place < range(seat).last; ++place)
      most = std::max(most, layer(place).shared_buffers);
  return most;
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
  return {Hold{MemoryKind::activations, layer(place).activations() + carried_to(place), name},
          Hold{MemoryKind::logits, layer(place).logits, name},
          Work{layer(place).forward, name + " forward"}};
}

// Weight gradients need the inputs of matrix multiplications: activations stay until they are done,
// and so does what recomputation has restored of them. Attention's scores only the gradients of
// inputs need.
std::vector<Act> StageBuilder::backward_acts(CallKind kind, int place) const {
  const LayerWork& work = layer(place);
  const std::string name = place_name(work_, place);
  const ChainRange again = again_[static_cast<std::size_t>(place)];
  const bool restored_before = again.first == again.last;  // with a later layer of its group
  const MemoryKind working = work.logits > Bytes(0) ? MemoryKind::logits : MemoryKind::workspace;
  const Release workspace{working, work.workspace(), name};
  std::vector<Act> acts;
  if (kind != CallKind::backward_weight) {
    for (int other = again.first; other + 1 < again.last; ++other)
      acts.emplace_back(
          Hold{MemoryKind::workspace, layer(other).restored, place_name(work_, other)});
    acts.emplace_back(Hold{working, restored_before ? work.transient : work.workspace(), name});
  }
  if (kind != CallKind::backward_input && data_.gradients_come_and_go())
    acts.emplace_back(
        Hold{MemoryKind::gradients, data_.gradient_bytes(parameters_at(place)), kGradients});
  if (kind != CallKind::backward_weight) {
    for (int other = again.first; other < again.last; ++other)
      acts.emplace_back(Work{layer(other).recompute, place_name(work_, other) + " recompute"});
  }
  if (kind == CallKind::backward_input) {
    acts.emplace_back(Work{input_half(work.backward), name + " backward"});
    if (!work.restored_for_weights) acts.emplace_back(workspace);
    return acts;
  }
  acts.emplace_back(
      Work{kind == CallKind::backward_weight ? weight_half(work.backward) : work.backward,
           name + " backward"});
  acts.emplace_back(Work{data_.accumulation(parameters_at(place)), name + " backward"});
  if (kind == CallKind::backward || work.restored_for_weights) acts.emplace_back(workspace);
  acts.emplace_back(Release{MemoryKind::activations, work.activations() + carried_to(place), name});
  acts.emplace_back(Release{MemoryKind::logits, work.logits, name});
  return acts;
}

void StageBuilder::write_forward(const BlockKey& key) {
  data_.begin(Pass::forward, range(key.seat), key.role);
  offload_.begin_forward(range(key.seat), range(key.then_fetch));
  for (int place = range(key.seat).first; place < range(key.seat).last; ++place) {
    data_.before(place);
    offload_.before(place);
    write(builder_, forward_acts(place));
    data_.after(place);
    offload_.after(place);
  }
  data_.end();
  send(key.seat, Pass::forward);
}

Pass backward_pass(CallKind kind) {
  return kind == CallKind::backward         ? Pass::backward
         : kind == CallKind::backward_input ? Pass::backward_input
                                            : Pass::backward_weight;
}

void StageBuilder::write_backward(const BlockKey& key) {
  data_.begin(backward_pass(key.kind), range(key.seat), key.role);
  offload_.begin_backward(range(key.seat), key.fetched, range(key.then_fetch));
  for (int place = range(key.seat).last - 1; place >= range(key.seat).first; --place) {
    data_.before(place);
    offload_.before(place);
    write(builder_, backward_acts(key.kind, place));
    data_.after(place);
  }
  if (key.kind == CallKind::backward_input) builder_.settle("input gradients");
  data_.end();
  if (key.kind != CallKind::backward_weight) send(key.seat, Pass::backward);
}

void StageBuilder::write_pair(const BlockKey& key) {
  std::vector<Act> first, second;
  const auto append = [](std::vector<Act>& acts, const std::vector<Act>& more) {
    acts.insert(acts.end(), more.begin(), more.end());
  };
  const ChainRange forward = range(key.seat), backward = range(key.backward_seat);
  for (int place = forward.first; place < forward.last; ++place)
    append(first, forward_acts(place));
  for (int place = backward.last - 1; place >= backward.first; --place)
    append(second, backward_acts(CallKind::backward, place));
  write_overlapped(builder_, first, second);
  data_.begin(Pass::backward, backward, key.backward_role);
  for (int place = backward.last - 1; place >= backward.first; --place)
    data_.after(place);
  data_.end();
  send(key.seat, Pass::forward);
  send(key.backward_seat, Pass::backward);
}

std::uint32_t StageBuilder::write_block(const BlockKey& key) {
  builder_.begin_block();
  wait_for_sends();
  for (const PipelineMessage& message : key.receives)
    receive(message);
  switch (key.kind) {
    case CallKind::forward: write_forward(key); break;
    case CallKind::backward:
    case CallKind::backward_input:
    case CallKind::backward_weight: write_backward(key); break;
    case CallKind::pair: write_pair(key); break;
    case CallKind::step: TRAINYARD_CHECK(false, "a step has no slot");
  }
  return builder_.end_block();
}

// Where the stage has a part of each copy of the network: in the order of their virtual stages,
// which the ranks that share gradients (stage s and its mirror image) have in common. Else nothing.
std::vector<ChainRange> StageBuilder::copies() const {
  std::vector<ChainRange> ranges;
  if (directions(step_.shape) == 1) return ranges;
  std::vector<Seat> own = seats();
  std::sort(own.begin(), own.end(), [&](const Seat& a, const Seat& b) {
    return virtual_stage(step_.shape, a) < virtual_stage(step_.shape, b);
  });
  for (const Seat& seat : own)
    ranges.push_back(range(seat));
  return ranges;
}

std::uint32_t StageBuilder::step_block(const StageParameters& parameters) {
  builder_.begin_block();
  wait_for_sends();
  data_.step(parameters, copies());
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

// The pass after `at`, if that one's first activations may be fetched already: a backward pass
// whose own forward is not the pass at `at`.
std::optional<Seat> StageBuilder::fetches_for(const std::vector<Slot>& order,
                                              std::size_t at) const {
  if (!offload_.fetches_ahead() || at + 1 >= order.size()) return std::nullopt;
  const Slot &now = order[at], &next = order[at + 1];
  const bool own = now.microbatch == next.microbatch && seat_of(now) == seat_of(next);
  if (next.pass == Pass::forward || own) return std::nullopt;
  return seat_of(next);
}

void StageBuilder::update(StageProgram& stage, const StageParameters& parameters) {
  if (!step_block_) step_block_ = step_block(parameters);
  builder_.call(*step_block_, 0);
  stage.calls.push_back({.kind = CallKind::step});
}

void StageBuilder::hold_tables(StageProgram& stage) {
  for (const Seat& seat : seats()) {
    for (int place = range(seat).first; place < range(seat).last; ++place) {
      const Resident& tables = layer(place).resident;
      builder_.resident(MemoryKind::parameters, tables.weights, layer(place).name);
      builder_.resident(MemoryKind::optimizer_state, tables.optimizer_state,
                        "state of " + layer(place).name);
      builder_.resident(MemoryKind::communication_buffers, tables.buffers,
                        "exchange of " + layer(place).name);
      stage.parameters += tables.parameters;
    }
  }
}

StageProgram StageBuilder::build(const std::vector<Slot>& order) {
  StageProgram stage;
  const StageParameters parameters = stage_parameters();
  stage.parameters = parameters.dense + parameters.experts;
  data_.hold_states(parameters, versions_);
  hold_tables(stage);
  builder_.resident(MemoryKind::communication_buffers, shared_buffers(),
                    "buffers of tensor parallelism");
  Bytes on_host, most_on_host;

  const std::vector<bool> completes = completing(order);

  // Blocks are written when they are first called, so that buckets are numbered in the order in
  // which they leave.
  std::map<BlockKey, std::uint32_t> blocks;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Slot& slot = order[i];
    BlockKey key{
        .kind = call_kind(slot), .seat = seat_of(slot), .role = data_.role(order, i, completes[i])};
    CallInfo info{
        .kind = key.kind, .microbatch = slot.microbatch, .chunk = part(step_.shape, slot)};
    messages_.receive(stage_, slot, key.receives);
    key.fetched = i > 0 && slot.pass != Pass::forward && fetches_for(order, i - 1).has_value();
    key.then_fetch = fetches_for(order, i);
    const Bytes moved = offload_.moved(range(key.seat));
    on_host = slot.pass == Pass::forward ? on_host + moved : on_host - moved;
    most_on_host = std::max(most_on_host, on_host);
    if (slot.paired) {
      const Slot& backward = order[++i];
      key.backward_seat = seat_of(backward);
      key.backward_role = data_.role(order, i, completes[i]);
      messages_.receive(stage_, backward, key.receives);
      info.backward_microbatch = backward.microbatch;
      info.backward_chunk = part(step_.shape, backward);
    }
    // `i` is now the slot whose backward ends with this call, if one does.
    auto block = blocks.find(key);
    if (block == blocks.end()) block = blocks.emplace(key, write_block(key)).first;
    builder_.call(block->second, static_cast<std::uint32_t>(slot.microbatch));
    stage.calls.push_back(info);
    if (updates_ == Updates::after_all || !completes[i]) continue;
    update(stage, parameters);
    if ((slot.microbatch + 1) % step_.shape.microbatches == 0)
      stage.round_calls.push_back(stage.calls.size());
  }
  if (updates_ == Updates::after_all) {
    update(stage, parameters);
    stage.round_calls.push_back(stage.calls.size());
  }
  stage.program = builder_.finish();
  stage.host = data_.host();
  stage.host.activations = most_on_host;
  return stage;
}

}  // namespace

int microbatches(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  return static_cast<int>(recipe.global_batch / (plan.degrees.data * recipe.micro_batch));
}

Execution execution(const TrainingRecipe& recipe, const ParallelPlan& plan) {
  return {.micro_batch = recipe.micro_batch,
          .sequence_length = recipe.sequence_length,
          .decoder_sequence_length = recipe.decoder_sequence_length,
          .predictions = recipe.predictions,
          .tensor = plan.degrees.tensor,
          .context = plan.degrees.context,
          .context_method = plan.context_method,
          .expert = plan.expert,
          .expert_tensor = plan.expert_tensor,
          .capacity = plan.capacity,
          .replicas = plan.degrees.data,
          .hierarchical_dispatch = plan.hierarchical_dispatch,
          .dispatch_dtype = plan.dispatch_dtype,
          .sequence_parallel = plan.sequence_parallel,
          .recompute = recipe.recompute,
          .recompute_modules = recipe.recompute_modules,
          .recompute_layers = recipe.recompute_layers,
          .fused_attention = recipe.fused_attention,
          .tensor_overlap = plan.tensor_overlap,
          .tensor_chunks = plan.tensor_chunks,
          .compute = recipe.compute,
          .fusion = recipe.fusion,
          .loss = recipe.loss};
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
  PipelineShape shape = shape_of(*schedule, stages, microbatches(recipe, plan), plan.chunks);
  shape.group = plan.group_size;
  return shape;
}

StepPlan plan_step(const NetworkWork& work, const TrainingRecipe& recipe, const ParallelPlan& plan,
                   const ScheduleInputs& inputs) {
  StepPlan step;
  step.shape = pipeline_shape(recipe, plan);
  step.layers = split_layers(work, step.shape, plan.layer_split, plan.layers_per_chunk);

  const RecomputePlaces placed = place_recompute(work, step.layers, recipe.recompute_layers);
  for (int place = 0; place < static_cast<int>(work.chain.size()); ++place) {
    const int kind = placed.work.chain[static_cast<std::size_t>(place)];
    step.kept.push_back(
        {place_name(placed.work, place), placed.work.kinds[static_cast<std::size_t>(kind)].kept});
  }

  const ScheduleEntry* schedule = find_schedule(plan.schedule);
  step.rounds = rounds(schedule, step.shape);
  PipelineShape all_rounds = step.shape;
  all_rounds.microbatches *= step.rounds.count;
  const StageOrders orders = schedule == nullptr ? custom_orders(plan.custom, step.shape)
                                                 : build_stages(*schedule, all_rounds, inputs);
  PipelineMessages messages(all_rounds, orders);
  const DataParallelStrategy strategy = strategy_of(plan, recipe);
  if (strategy.replicas > 1) {
    step.shard_ranks = plan.degrees.replicas() / strategy.replicas;
    step.expert_shard_ranks = plan.expert_replicas() / strategy.replicas;
  }
  step.norm_over_all = strategy.optimizer_shards > 1 || plan.expert > 1;
  for (int stage = 0; stage < step.shape.stages; ++stage) {
    StageBuilder builder(step, placed, recipe, plan, messages, stage, schedule);
    step.stages.push_back(builder.build(orders[static_cast<std::size_t>(stage)]));
  }

  Flops forward, recomputed;
  for (const int kind : placed.work.chain) {
    const LayerWork& layer = placed.work.kinds[static_cast<std::size_t>(kind)];
    forward = forward + layer.forward_model_flops;
    recomputed = recomputed + layer.recompute_model_flops;
  }
  const double passes = static_cast<double>(step.shape.microbatches) * plan.degrees.data;
  step.model_flops = 3 * passes * forward;
  step.executed_flops = step.model_flops + passes * recomputed;
  return step;
}

}  // namespace trainyard
