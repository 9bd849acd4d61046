#include "sim/plan/stage/stage_builder.h"

#include <fmt/format.h>

#include <string>

#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "sim/plan/stage/place_labels.h"
#include "sim/plan/step_memory.h"

namespace trainyard::plan {

using schedule::Pass;
using schedule::Seat;
using schedule::Slot;
using schedule::Updates;

namespace {

// Of what replicas exchange and hosts update.
constexpr StreamSet kReplicaStreams =
    stream_bit(StreamKind::data) | stream_bit(StreamKind::gather) |
    stream_bit(StreamKind::gather_second) | stream_bit(StreamKind::replica) |
    stream_bit(StreamKind::host_optimizer) | stream_bit(StreamKind::to_host) |
    stream_bit(StreamKind::to_device) | stream_bit(StreamKind::nvme_write);

constexpr const char* kGradients = "gradients";
constexpr const char* kCarried = "encoder output";

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

Pass backward_pass(CallKind kind) {
  return kind == CallKind::backward         ? Pass::backward
         : kind == CallKind::backward_input ? Pass::backward_input
                                            : Pass::backward_weight;
}

// What crosses a boundary of virtual stages, whole.
Bytes boundary_bytes(const StepPlan& step, const models::NetworkWork& work,
                     const PipelineMessage& message) {
  const int place = step.layers[static_cast<std::size_t>(message.boundary)].last - 1;
  return work.kinds[static_cast<std::size_t>(work.chain[static_cast<std::size_t>(place)])].output;
}

// Whether ranks send parts of what each of them has, and gather the parts on arrival.
bool splits_messages(const recipe::ParallelPlan& plan) {
  return plan.pipeline.scatter_gather && !plan.tensor_parallel.sequence && plan.degrees.tensor > 1;
}

// What each rank sends: with sequence parallelism it has no more than its part.
Bytes part_of_message(Bytes boundary, const recipe::ParallelPlan& plan) {
  const bool in_parts = plan.tensor_parallel.sequence || splits_messages(plan);
  return Bytes(divide_up(boundary.count(), in_parts ? plan.degrees.tensor : 1));
}

// Where a layer works in its backward pass.
MemoryKind working_memory(const models::LayerWork& work) {
  return work.logits > Bytes(0) ? MemoryKind::logits : MemoryKind::workspace;
}

std::optional<ChainRange> range_of(const StepPlan& step, const std::optional<Seat>& seat) {
  if (!seat) return std::nullopt;
  return step.layers[static_cast<std::size_t>(virtual_stage(step.shape, *seat))];
}

// The compute stream waits for its sends, as blocking calls do.
void wait_for_sends(ProgramBuilder& builder, const StepPlan& step,
                    const recipe::Pipeline& pipeline) {
  if (pipeline.overlap_p2p || step.shape.stages == 1) return;
  const bool looped = step.shape.placement == schedule::Placement::looped;
  builder.compute_waits_for(looped && !pipeline.branches ? kSends : kSends | kSendsUp);
}

// Without a backward pass nobody needs what the layer has kept but the next one, which has run.
void forget(ProgramBuilder& builder, const RunningWork& running, int place) {
  const models::LayerWork& layer = running.layer(place);
  builder.release(MemoryKind::activations, layer.activations(), running.owner(place));
  builder.release(MemoryKind::logits, layer.logits, running.owner(place));
}

// How many slots of the order a step has, where programs hold whole steps; else all.
std::size_t slots_of_step(const Rounds& rounds, const std::vector<Slot>& order) {
  return order.size() / static_cast<std::size_t>(rounds.whole ? rounds.count : 1);
}

// A virtual stage without layers sends on what it has received.
void pass_on(ProgramBuilder& builder, ChainRange range) {
  if (range.first == range.last) builder.settle_waits("no layers");
}

}  // namespace

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
      const models::FrozenWeights frozen = own_frozen(step_, work_, place);
      const std::array<Bytes, 2> bytes = frozen_bytes(frozen, recipe_);
      for (std::size_t group = 0; group < bytes.size(); ++group)
        parameters.frozen[group] = parameters.frozen[group] + bytes[group];
      parameters.frozen_numbers += frozen.parameters + frozen.expert_parameters;
      parameters.fp8_copies = parameters.fp8_copies + fp8_copies(layer(place).forward, recipe_);
      const std::vector<models::WeightMatrix> matrices = own_matrices(step_, work_, place);
      parameters.matrices.insert(parameters.matrices.end(), matrices.begin(), matrices.end());
    }
  }
  return parameters;
}

void StageBuilder::receive(const PipelineMessage& message) {
  const ConnectionId lane = builder_.connections().lane(message.lane);
  const Bytes whole = boundary_bytes(step_, work_, message);
  const bool gradients = carries_gradients(message.lane);
  const std::string what = gradients ? "gradients" : "activations";
  const PairPart part = gradients ? PairPart::backward : PairPart::forward;
  builder_.receive(lane, part_of_message(whole, plan_), "receive " + what, part);
  if (!splits_messages(plan_)) return;
  // Source: Megatron-LM 2021, megatron/p2p_communication.py (gather_split_1d_tensor).
  builder_.collective(StreamKind::tensor, builder_.connections().layer(models::LayerGroup::tensor),
                      {CollectiveKind::all_gather, whole},
                      stream_bit(step_.cast.connections[lane].arrives_on),
                      "gather received " + what, part);
  builder_.compute_waits_for(stream_bit(StreamKind::tensor));
}

void StageBuilder::send(const Seat& seat, Pass pass) {
  const auto message = messages_.sent(stage_, {pass, 0, seat.chunk, seat.direction});
  if (!message) return;
  const ConnectionId lane = builder_.connections().lane(message->lane);
  const Bytes bytes = part_of_message(boundary_bytes(step_, work_, *message), plan_);
  if (pass == Pass::forward)
    builder_.send(lane, bytes, "send activations", PairPart::forward);
  else
    builder_.send(lane, bytes, "send gradients", PairPart::backward);
}

std::vector<Act> StageBuilder::forward_acts(int place) const {
  const std::string name = running_.owner(place);
  return {Hold{MemoryKind::activations, layer(place).activations(), name},
          Hold{MemoryKind::activations, carried_to(place), kCarried},
          Hold{MemoryKind::logits, layer(place).logits, name},
          Hold{MemoryKind::workspace, layer(place).forward_transient, name},
          Work{{}, place_sign(place) + " forward", PairPart::forward, layer(place).forward},
          Release{MemoryKind::workspace, layer(place).forward_transient, name}};
}

std::vector<Act> StageBuilder::again_acts(CallKind kind, int place) const {
  const models::LayerWork& work = layer(place);
  const ChainRange again = running_.again(place);
  const bool restored_before = again.first == again.last;  // with a later layer of its group
  std::vector<Act> acts;
  if (kind != CallKind::backward_weight) {
    for (int other = again.first; other + 1 < again.last; ++other)
      acts.emplace_back(Hold{MemoryKind::workspace, layer(other).restored, place_sign(other)});
    acts.emplace_back(Hold{working_memory(work),
                           restored_before ? work.transient : work.workspace(), place_sign(place)});
  }
  if (kind != CallKind::backward_input && data_.gradients_come_and_go())
    acts.emplace_back(
        Hold{MemoryKind::gradients, data_.gradient_bytes(parameters_at(place)), kGradients});
  if (kind == CallKind::backward_weight) return acts;
  for (int other = again.first; other < again.last; ++other)
    acts.emplace_back(
        Work{{}, place_sign(other) + " recompute", PairPart::backward, layer(other).recompute});
  return acts;
}

// Weight gradients need the inputs of matrix multiplications: activations stay until they are done,
// and so does what recomputation has restored of them. Attention's scores only the gradients of
// inputs need.
std::vector<Act> StageBuilder::backward_acts(CallKind kind, int place, bool alone) {
  const models::LayerWork& work = layer(place);
  const std::string name = place_sign(place);
  const Release workspace{working_memory(work), work.workspace(), name};
  std::vector<Act> acts;
  if (kind == CallKind::backward_input) {
    acts.emplace_back(Work{input_half(work.backward), name + " backward"});
    if (!work.restored_for_weights) acts.emplace_back(workspace);
    return acts;
  }
  const bool is_half = kind == CallKind::backward_weight;
  const std::vector<models::WorkItem> half =
      is_half ? weight_half(work.backward) : std::vector<models::WorkItem>();
  const std::vector<models::WorkItem>& items = is_half ? half : work.backward;
  const auto part = [&](std::vector<models::WorkItem>::const_iterator from,
                        std::vector<models::WorkItem>::const_iterator to) {
    Work some{.own = {}, .where = name + " backward"};
    if (is_half)
      some.own.assign(from, to);
    else
      some.of_layer = {from, to};
    return some;
  };
  std::int64_t parameters = parameters_at(place);
  auto from = items.begin();
  for (const GradientCut& cut : alone ? data_.cuts(place, items) : std::vector<GradientCut>()) {
    const auto to = items.begin() + static_cast<std::ptrdiff_t>(cut.items);
    acts.emplace_back(part(from, to));
    acts.emplace_back(Work{data_.accumulation(cut.parameters[0]), name + " backward"});
    acts.emplace_back(Between{[this, place, cut] { data_.during(place, cut); }});
    parameters -= cut.parameters[0];
    from = to;
  }
  acts.emplace_back(part(from, items.end()));
  acts.emplace_back(Work{data_.accumulation(parameters), name + " backward"});
  if (kind == CallKind::backward || work.restored_for_weights) acts.emplace_back(workspace);
  acts.emplace_back(Release{MemoryKind::activations, work.activations(), running_.owner(place)});
  acts.emplace_back(Release{MemoryKind::activations, carried_to(place), kCarried});
  acts.emplace_back(Release{MemoryKind::logits, work.logits, running_.owner(place)});
  return acts;
}

void StageBuilder::write_forward(const BlockKey& key) {
  data_.begin(Pass::forward, range(key.seat), key.role);
  offload_.begin_forward(range(key.seat), range_of(step_, key.then_fetch));
  branches_.begin_forward();
  for (int place = range(key.seat).first; place < range(key.seat).last; ++place) {
    data_.before(place);
    offload_.before(place);
    branches_.before(place);
    write(builder_, forward_acts(place));
    branches_.after(place);
    data_.after(place);
    offload_.after(place);
    if (recipe_.forward_only && place > range(key.seat).first)
      forget(builder_, running_, place - 1);
  }
  if (recipe_.forward_only && range(key.seat).first < range(key.seat).last) {
    forget(builder_, running_, range(key.seat).last - 1);
    builder_.release(MemoryKind::activations, carried_to(range(key.seat).first), kCarried);
  }
  pass_on(builder_, range(key.seat));
  data_.end();
  send(key.seat, Pass::forward);
}

void StageBuilder::write_backward(const BlockKey& key) {
  data_.begin(backward_pass(key.kind), range(key.seat), key.role);
  offload_.begin_backward(range(key.seat), key.fetched, range_of(step_, key.then_fetch));
  branches_.begin_backward();
  const int first = range(key.seat).last - 1;  // in the order of the pass
  const bool ahead = recipe_.recompute.ahead;
  for (int place = first; place >= range(key.seat).first; --place) {
    data_.before(place);
    offload_.before(place);
    if (ahead) write(builder_, again_acts(key.kind, place));
    if (ahead && place == first) receive_all(key);
    branches_.before(place);
    if (!ahead) write(builder_, again_acts(key.kind, place));
    write(builder_, backward_acts(key.kind, place, true));
    branches_.after(place);
    data_.after(place);
  }
  if (key.kind == CallKind::backward_input) builder_.settle("input gradients");
  pass_on(builder_, range(key.seat));
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
  running_.run(key.backward_whole);
  for (int place = backward.last - 1; place >= backward.first; --place) {
    append(second, again_acts(CallKind::backward, place));
    append(second, backward_acts(CallKind::backward, place, false));
  }
  write_overlapped(builder_, first, second);
  pass_on(builder_, forward);
  pass_on(builder_, backward);
  data_.begin(Pass::backward, backward, key.backward_role);
  for (int place = backward.last - 1; place >= backward.first; --place)
    data_.after(place);
  data_.end();
  send(key.seat, Pass::forward);
  send(key.backward_seat, Pass::backward);
}

void StageBuilder::receive_all(const BlockKey& key) {
  for (const PipelineMessage& message : key.receives)
    receive(message);
}

std::uint32_t StageBuilder::write_pass(const BlockKey& key) {
  running_.run(key.whole);
  builder_.begin_block();
  wait_for_sends(builder_, step_, plan_.pipeline);
  const bool is_backward =
      key.kind != CallKind::forward && key.kind != CallKind::pair && key.kind != CallKind::step;
  const bool empty = range(key.seat).first == range(key.seat).last;
  if (!recipe_.recompute.ahead || !is_backward || empty) receive_all(key);
  switch (key.kind) {
    case CallKind::forward: write_forward(key); break;
    case CallKind::backward:
    case CallKind::backward_input:
    case CallKind::backward_weight: write_backward(key); break;
    case CallKind::pair: write_pair(key); break;
    case CallKind::step: TRAINYARD_CHECK(false, "a step has no slot");
  }
  running_.run(false);
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

std::uint32_t StageBuilder::write_step() {
  builder_.begin_block();
  wait_for_sends(builder_, step_, plan_.pipeline);
  if (!recipe_.forward_only) data_.step(parameters_, copies());
  // What a step leaves behind, as gathers of updated parameters, the next one finds done.
  if (step_.rounds.whole && !step_.rounds.apart) {
    builder_.compute_waits_for(kReplicaStreams);
    builder_.settle_waits("end of the step");
  }
  return builder_.end_block();
}

// Whether the gradients of a slot's part are complete after it and may be reduced, by slot.
std::vector<bool> StageBuilder::completing(const std::vector<Slot>& order) const {
  std::vector<bool> completes(order.size(), false);
  if (updates_ != Updates::after_all && !step_.rounds.whole) {
    for (std::size_t i = 0; i < order.size(); ++i)
      completes[i] = ends_backward(order[i].pass) &&
                     (updates_ == Updates::every_microbatch ||
                      (order[i].microbatch + 1) % step_.shape.microbatches == 0);
    return completes;
  }
  const std::size_t slots = slots_of_step(step_.rounds, order);
  std::vector<bool> seen;
  for (std::size_t i = order.size(); i-- > 0;) {
    if ((i + 1) % slots == 0) seen.assign(static_cast<std::size_t>(parts(step_.shape)), false);
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

void StageBuilder::update(Role& stage) {
  if (!step_block_) step_block_ = block({.kind = CallKind::step});
  builder_.call(*step_block_, 0);
  stage.calls.push_back({.kind = CallKind::step});
}

// Tables, and the buffers that layers of a kind share.
void StageBuilder::hold_tables(Role& stage) {
  Bytes most;
  for (const Seat& seat : seats()) {
    for (int place = range(seat).first; place < range(seat).last; ++place) {
      const models::Resident& tables = layer(place).resident;
      builder_.resident(MemoryKind::parameters, tables.weights, layer(place).name);
      builder_.resident(MemoryKind::optimizer_state, tables.optimizer_state,
                        "state of " + layer(place).name);
      builder_.resident(MemoryKind::communication_buffers, tables.buffers,
                        "exchange of " + layer(place).name);
      stage.parameters += tables.parameters;
      most = std::max(most, layer(place).shared_buffers);
    }
  }
  builder_.resident(MemoryKind::communication_buffers, most, "buffers of tensor parallelism");
}

// What comes before the first step of ranks at their own pace.
void StageBuilder::start(Role& stage) {
  if (!step_.rounds.apart) return;
  builder_.begin_block();
  data_.start();
  builder_.call(builder_.end_block(), 0);
  stage.calls.push_back({.kind = CallKind::step});
}

std::uint32_t StageBuilder::write_block(const BlockKey& key) {
  return key.kind == CallKind::step ? write_step() : write_pass(key);
}

// The next block: that of the stage alike, as long as it has the same ones.
std::uint32_t StageBuilder::block(const BlockKey& key) {
  const std::size_t at = keys_.size();
  keys_.push_back(key);
  if (pattern_ == nullptr) return write_block(key);
  const bool has_it =
      at < pattern_->blocks.size() && without_stage(key, step_, dealt_) == pattern_->blocks[at];
  return has_it ? static_cast<std::uint32_t>(at) : write_all();
}

// What is written follows from the keys alone. The last block.
std::uint32_t StageBuilder::write_all() {
  pattern_ = nullptr;
  std::uint32_t last = 0;
  for (const BlockKey& key : keys_)
    last = write_block(key);
  return last;
}

void StageBuilder::finish(Role& stage, StagePatterns* patterns,
                          const std::optional<StageLikeness>& alike) {
  if (pattern_ != nullptr && keys_.size() != pattern_->blocks.size()) write_all();
  std::vector<int> places;
  for (const Seat& seat : seats())
    for (int place = range(seat).first; place < range(seat).last; ++place)
      places.push_back(place);
  stage.program = builder_.finish();
  if (pattern_ != nullptr) {
    const Role& other = step_.cast.roles[pattern_->role];
    std::vector<engine::Call> calls = std::move(stage.program.calls);
    stage.program = other.program;
    stage.program.calls = std::move(calls);
    std::vector<int> moved(work_.chain.size(), -1);
    for (std::size_t i = 0; i < places.size(); ++i)
      moved[static_cast<std::size_t>(pattern_->places[i])] = places[i];
    stage.program.labels = with_names(pattern_->labels, step_, moved);
    stage.host = other.host;
    return;
  }
  stage.program.pools = data_.pools();
  stage.host = data_.host();
  std::vector<std::string> labels = std::move(stage.program.labels);
  stage.program.labels = with_names(labels, step_);
  if (patterns == nullptr || !alike) return;
  StagePattern own{.role = step_.cast.roles.size(),
                   .blocks = {},
                   .places = std::move(places),
                   .labels = std::move(labels)};
  for (const BlockKey& key : keys_)
    own.blocks.push_back(without_stage(key, step_, dealt_));
  patterns->add(*alike, std::move(own));
}

Role StageBuilder::build(const std::vector<Slot>& order, StagePatterns* patterns) {
  Role stage;
  stage.stage = stage_;
  parameters_ = stage_parameters();
  stage.frozen = parameters_.frozen_numbers;
  stage.parameters = parameters_.dense + parameters_.experts + stage.frozen;
  std::optional<StageLikeness> alike;
  if (patterns != nullptr) alike = likeness(step_, dealt_, messages_, seats(), versions_);
  if (alike) pattern_ = patterns->find(*alike);
  data_.hold_states(parameters_, versions_);
  hold_tables(stage);
  Bytes on_host, most_on_host;

  const std::vector<bool> completes = completing(order);
  running_.take_order(order);
  start(stage);

  // Blocks are written when they are first called, so that buckets are numbered in the order in
  // which they leave.
  Blocks blocks;
  stage.calls.reserve(order.size() + 1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Slot& slot = order[i];
    BlockKey key{
        .kind = call_kind(slot), .seat = seat_of(slot), .role = data_.role(order, i, completes[i])};
    CallInfo info{
        .kind = key.kind, .microbatch = slot.microbatch, .chunk = part(step_.shape, slot)};
    messages_.receive(stage_, slot, key.receives);
    key.fetched = i > 0 && slot.pass != Pass::forward && fetches_for(order, i - 1).has_value();
    key.then_fetch = fetches_for(order, i);
    key.whole = running_.keeps_whole(slot);
    const Bytes moved = offload_.moved(range(key.seat));
    on_host = slot.pass == Pass::forward ? on_host + moved : on_host - moved;
    most_on_host = std::max(most_on_host, on_host);
    if (slot.paired) {
      const Slot& backward = order[++i];
      key.backward_seat = seat_of(backward);
      key.backward_role = data_.role(order, i, completes[i]);
      key.backward_whole = running_.keeps_whole(backward);
      messages_.receive(stage_, backward, key.receives);
      info.backward_microbatch = backward.microbatch;
      info.backward_chunk = part(step_.shape, backward);
    }
    if (input_ != nullptr && slot.pass == Pass::forward) {
      builder_.call(input_->take(builder_, slot.microbatch),
                    static_cast<std::uint32_t>(slot.microbatch));
      stage.calls.push_back({.kind = CallKind::forward, .microbatch = slot.microbatch});
    }
    // `i` is now the slot whose backward ends with this call, if one does.
    builder_.call(blocks.find(key, [&] { return block(key); }),
                  static_cast<std::uint32_t>(slot.microbatch));
    stage.calls.push_back(info);
    if (updates_ == Updates::after_all) continue;
    const bool ends_step = step_.rounds.whole
                               ? (i + 1) % slots_of_step(step_.rounds, order) == 0
                               : (slot.microbatch + 1) % step_.shape.microbatches == 0;
    if (!(step_.rounds.whole ? ends_step : completes[i])) continue;
    update(stage);
    if (ends_step) stage.round_calls.push_back(stage.calls.size());
  }
  if (updates_ == Updates::after_all) {
    update(stage);
    stage.round_calls.push_back(stage.calls.size());
  }
  finish(stage, patterns, alike);
  stage.host.activations = most_on_host;
  return stage;
}

}  // namespace trainyard::plan
