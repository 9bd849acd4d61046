// What a stage writes: the passes of its schedule and the step after them.

#include <string>

#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "sim/plan/stage/place_labels.h"
#include "sim/plan/stage/stage_builder.h"

namespace trainyard::plan {

using schedule::Pass;
using schedule::Seat;

namespace {

// Of what replicas exchange and hosts update.
constexpr StreamSet kReplicaStreams =
    stream_bit(StreamKind::data) | stream_bit(StreamKind::gather) |
    stream_bit(StreamKind::gather_second) | stream_bit(StreamKind::replica) |
    stream_bit(StreamKind::host_optimizer) | stream_bit(StreamKind::to_host) |
    stream_bit(StreamKind::to_device) | stream_bit(StreamKind::nvme_write);

constexpr const char* kGradients = "gradients";
constexpr const char* kCarried = "encoder output";

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

// A virtual stage without layers sends on what it has received.
void pass_on(ProgramBuilder& builder, ChainRange range) {
  if (range.first == range.last) builder.settle_waits("no layers");
}

}  // namespace

void StageBuilder::receive(const std::vector<PipelineMessage>& messages) {
  for (const PipelineMessage& message : messages) {
    const ConnectionId lane = builder_.connections().lane(message.lane);
    const Bytes whole = boundary_bytes(step_, work_, message);
    const bool gradients = carries_gradients(message.lane);
    const std::string what = gradients ? "gradients" : "activations";
    const PairPart part = gradients ? PairPart::backward : PairPart::forward;
    builder_.receive(lane, part_of_message(whole, plan_), "receive " + what, part);
    if (!splits_messages(plan_)) continue;
    // Source: Megatron-LM 2021, megatron/p2p_communication.py (gather_split_1d_tensor).
    builder_.collective(
        StreamKind::tensor, builder_.connections().layer(models::LayerGroup::tensor),
        {CollectiveKind::all_gather, whole}, stream_bit(step_.cast.connections[lane].arrives_on),
        "gather received " + what, part);
    builder_.compute_waits_for(stream_bit(StreamKind::tensor));
  }
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
    acts.emplace_back(Hold{MemoryKind::gradients, data_.gradient_bytes(place), kGradients});
  if (kind != CallKind::backward_input)
    acts.emplace_back(
        Hold{MemoryKind::gradients, data_.gradients_of_pass({place, place + 1}), kUnsummed});
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
  std::int64_t parameters = parameters_at(place) + work.expert_parameters;
  auto from = items.begin();
  for (const GradientCut& cut : alone ? data_.cuts(place, items) : std::vector<GradientCut>()) {
    const auto to = items.begin() + static_cast<std::ptrdiff_t>(cut.items);
    acts.emplace_back(part(from, to));
    const std::int64_t complete = cut.parameters[0] + cut.parameters[1];
    acts.emplace_back(Work{data_.accumulation(complete), name + " backward"});
    acts.emplace_back(Between{[this, place, cut] { data_.during(place, cut); }});
    parameters -= complete;
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
  scales_.after(range(key.seat), PairPart::forward);
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
    if (ahead && place == first) receive(key.receives);
    branches_.before(place);
    if (!ahead) write(builder_, again_acts(key.kind, place));
    write(builder_, backward_acts(key.kind, place, true));
    branches_.after(place);
    data_.after(place);
  }
  if (key.kind == CallKind::backward_input)
    builder_.settle("input gradients");
  else
    builder_.release(MemoryKind::gradients, data_.gradients_of_pass(range(key.seat)), kUnsummed);
  pass_on(builder_, range(key.seat));
  if (key.kind != CallKind::backward_weight) scales_.after(range(key.seat), PairPart::backward);
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
  write_overlapped(builder_, first, second,
                   plan_.pipeline.overlap_passes ? Hidden::experts : Hidden::all);
  builder_.release(MemoryKind::gradients, data_.gradients_of_pass(backward), kUnsummed);
  pass_on(builder_, forward);
  pass_on(builder_, backward);
  scales_.after(forward, PairPart::forward);
  scales_.after(backward, PairPart::backward);
  data_.begin(Pass::backward, backward, key.backward_role);
  for (int place = backward.last - 1; place >= backward.first; --place)
    data_.after(place);
  data_.end();
  send(key.seat, Pass::forward);
  send(key.backward_seat, Pass::backward);
}

std::uint32_t StageBuilder::write_pass(const BlockKey& key) {
  running_.run(key.whole);
  builder_.begin_block();
  wait_for_sends(builder_, step_, plan_.pipeline);
  const bool is_backward =
      key.kind != CallKind::forward && key.kind != CallKind::pair && key.kind != CallKind::step;
  const bool empty = range(key.seat).first == range(key.seat).last;
  if (!recipe_.recompute.ahead || !is_backward || empty) receive(key.receives);
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
  std::vector<Seat> own = seats_of(step_.shape, stage_);
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

}  // namespace trainyard::plan
