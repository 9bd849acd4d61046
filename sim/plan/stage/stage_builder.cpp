#include "sim/plan/stage/stage_builder.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "sim/plan/stage/place_labels.h"
#include "sim/plan/step_memory.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using schedule::Pass;
using schedule::Seat;
using schedule::Slot;
using schedule::Updates;

namespace {

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

// Micro-batches whose outputs a head keeps. A compiled loss has the latest of them for itself,
// until its backward pass: what is held beyond that is left out.
int outputs_beside_loss(const recipe::TrainingRecipe& recipe, int microbatches) {
  const int kept = std::min(recipe.memory.kept_outputs.value(), microbatches);
  return kept - (kept > 0 && recipe.kernels.of_loss() == models::LossKernels::compiled ? 1 : 0);
}

// How many slots of the order a step has, where programs hold whole steps; else all.
std::size_t slots_of_step(const Rounds& rounds, const std::vector<Slot>& order) {
  return order.size() / static_cast<std::size_t>(rounds.whole ? rounds.count : 1);
}

}  // namespace

StageParameters StageBuilder::stage_parameters() const {
  StageParameters parameters;
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const Seat& seat : seats_of(step_.shape, stage_)) {
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
      if (!layer(place).keeps_placeholders) continue;
      for (const models::WeightMatrix& matrix : matrices) {
        if (!shapes.emplace(matrix.rows, matrix.columns).second) continue;
        const Bytes element = size_of(stored_type(recipe_.precision.compute));
        parameters.placeholders = parameters.placeholders + matrix.each() * element;
      }
    }
  }
  return parameters;
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

void StageBuilder::find_key(const std::vector<Slot>& order, std::size_t at, bool completes,
                            BlockKey& key) {
  const Slot& slot = order[at];
  std::vector<PipelineMessage> receives = std::move(key.receives);  // for its memory
  receives.clear();
  messages_.receive(stage_, slot, receives);
  key = {.kind = call_kind(slot),
         .seat = seat_of(slot),
         .role = data_.role(order, at, completes),
         .receives = std::move(receives),
         .whole = running_.keeps_whole(slot),
         .fetched = at > 0 && slot.pass != Pass::forward && fetches_for(order, at - 1).has_value(),
         .then_fetch = fetches_for(order, at)};
}

void StageBuilder::update(Role& stage) {
  if (!step_block_) step_block_ = blocks_.add({.kind = CallKind::step});
  builder_.call(*step_block_, 0);
  stage.calls.push_back({.kind = CallKind::step});
}

// Tables, the buffers that layers of a kind share, and outputs that the trainer keeps.
void StageBuilder::hold_tables(Role& stage) {
  const int outputs =
      outputs_beside_loss(recipe_, step_.shape.microbatches / directions(step_.shape));
  Bytes most;
  for (const Seat& seat : seats_of(step_.shape, stage_)) {
    for (int place = range(seat).first; place < range(seat).last; ++place) {
      const models::Resident& tables = layer(place).resident;
      const std::string& name = layer(place).name;
      builder_.resident(MemoryKind::parameters, tables.weights, name);
      if (tables.optimizer_state > Bytes(0))
        builder_.resident(MemoryKind::optimizer_state, tables.optimizer_state, "state of " + name);
      if (tables.buffers > Bytes(0))
        builder_.resident(MemoryKind::communication_buffers, tables.buffers, "exchange of " + name);
      builder_.resident(MemoryKind::logits, outputs * layer(place).outputs,
                        "outputs of micro-batches");
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

void StageBuilder::finish(Role& stage, StagePatterns* patterns,
                          const std::optional<StageLikeness>& alike) {
  const StagePattern* pattern = blocks_.finish();
  std::vector<int> places;
  for (const Seat& seat : seats_of(step_.shape, stage_))
    for (int place = range(seat).first; place < range(seat).last; ++place)
      places.push_back(place);
  stage.program = builder_.finish();
  if (pattern != nullptr) {
    const Role& other = step_.cast.roles[pattern->role];
    std::vector<engine::Call> calls = std::move(stage.program.calls);
    stage.program = other.program;
    stage.program.calls = std::move(calls);
    std::vector<int> moved(work_.chain.size(), -1);
    for (std::size_t i = 0; i < places.size(); ++i)
      moved[static_cast<std::size_t>(pattern->places[i])] = places[i];
    stage.program.labels = with_names(pattern->labels, step_, moved);
    stage.host = other.host;
    return;
  }
  stage.program.pools = data_.pools();
  stage.host = data_.host();
  engine::Labels labels = std::move(stage.program.labels);
  stage.program.labels = with_names(labels, step_);
  if (patterns == nullptr || !alike) return;
  StagePattern own{.role = step_.cast.roles.size(),
                   .blocks = blocks_.keys(),
                   .places = std::move(places),
                   .labels = std::move(labels)};
  patterns->add(*alike, std::move(own));
}

Role StageBuilder::build(const std::vector<Slot>& order, StagePatterns* patterns) {
  Role stage;
  stage.stage = stage_;
  parameters_ = stage_parameters();
  stage.frozen = parameters_.frozen_numbers;
  stage.parameters = parameters_.dense + parameters_.experts + stage.frozen;
  std::optional<StageLikeness> alike;
  if (patterns != nullptr) alike = likeness(step_, dealt_, messages_, stage_, versions_);
  if (alike) blocks_.follow(patterns->find(*alike));
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
  BlockKey key;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Slot& slot = order[i];
    find_key(order, i, completes[i], key);
    CallInfo info{
        .kind = key.kind, .microbatch = slot.microbatch, .chunk = part(step_.shape, slot)};
    if (offload_.used()) {
      const Bytes moved = offload_.moved(range(key.seat));
      on_host = slot.pass == Pass::forward ? on_host + moved : on_host - moved;
      most_on_host = std::max(most_on_host, on_host);
    }
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
    builder_.call(blocks.find(key, info.chunk, [&] { return blocks_.add(key); }),
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
