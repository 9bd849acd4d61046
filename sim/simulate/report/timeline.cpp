#include "sim/simulate/report/timeline.h"

#include <algorithm>
#include <array>
#include <map>

#include "sim/base/hash.h"
#include "sim/simulate/report/actor_spans.h"
#include "sim/simulate/report/summarize.h"

namespace trainyard::simulate {

using engine::Op;
using engine::OpKind;
using engine::Program;
using engine::Span;
using lower::RankClass;
using plan::CallInfo;
using plan::CallKind;
using plan::OpGroup;
using plan::PairPart;

namespace {

// At most `limit` classes: the first of every stage, then the others in turn.
std::vector<std::size_t> chosen_classes(const lower::Lowered& lowered, int limit) {
  std::map<int, std::vector<std::size_t>> by_stage;
  for (std::size_t c = 0; c < lowered.classes.size(); ++c)
    by_stage[lowered.classes[c].stage].push_back(c);
  std::vector<std::size_t> chosen;
  for (std::size_t turn = 0; static_cast<int>(chosen.size()) < limit; ++turn) {
    const std::size_t before = chosen.size();
    for (const auto& [stage, classes] : by_stage) {
      if (turn < classes.size() && static_cast<int>(chosen.size()) < limit)
        chosen.push_back(classes[turn]);
    }
    if (chosen.size() == before) break;
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

class TimelineBuilder {
 public:
  explicit TimelineBuilder(const Step& step) : step_(step), trace_(step.trace()) {}

  Timeline build(int ranks_shown) {
    timeline_.end = trace_.end;
    timeline_.ranks_total = static_cast<int>(step_.lowered.class_of_rank.size());
    for (const std::size_t c : chosen_classes(step_.lowered, ranks_shown)) {
      device_ = &step_.devices[c];
      const RankClass& rank_class = step_.lowered.classes[c];
      timeline_.ranks_shown.push_back(rank_class.representative);
      add_lanes(rank_class);
      add_memory(rank_class);
    }
    return std::move(timeline_);
  }

 private:
  void add_lanes(const RankClass& rank_class);
  void add_memory(const RankClass& rank_class);
  Slice slice(const RankClass& rank_class, const Span& span);
  std::uint32_t name_index(const std::string& name) {
    const auto next = static_cast<std::uint32_t>(timeline_.names.size());
    const auto [at, added] = name_index_.try_emplace(name, next);
    if (added) timeline_.names.push_back(name);
    return at->second;
  }

  const Step& step_;
  const engine::Trace& trace_;
  Timeline timeline_;
  const DeviceMemory* device_ = nullptr;  // of the class in hand
  std::map<std::string, std::uint32_t> name_index_;
  std::map<std::pair<std::uint32_t, bool>, std::uint64_t> messages_;  // so far, by channel and end
};

bool is_forward(const Op& op, const CallInfo& call) {
  if (call.kind != CallKind::pair) return call.kind == CallKind::forward;
  return static_cast<PairPart>(op.part) == PairPart::forward;
}

SliceKind kind_of(const Op& op, const CallInfo& call) {
  switch (static_cast<OpGroup>(op.group)) {
    case OpGroup::optimizer: return SliceKind::optimizer;
    case OpGroup::tensor: return SliceKind::tensor;
    case OpGroup::context: return SliceKind::context;
    case OpGroup::expert: return SliceKind::expert;
    case OpGroup::data: return SliceKind::data;
    case OpGroup::pipeline: return SliceKind::pipeline;
    case OpGroup::host_optimizer: return SliceKind::optimizer;
    case OpGroup::host_copy: return SliceKind::host_copy;
    case OpGroup::recompute: return SliceKind::recompute;
    case OpGroup::compute: break;
  }
  return is_forward(op, call) ? SliceKind::forward : SliceKind::backward;
}

Slice TimelineBuilder::slice(const RankClass& rank_class, const Span& span) {
  const plan::Role& stage = step_.plan.cast.roles[static_cast<std::size_t>(rank_class.stage)];
  const Program& program = stage.program;
  const Op& op = program.blocks[program.calls[span.call].block].ops[span.op];
  const CallInfo& call = stage.calls[span.call];
  Slice slice;
  slice.begin = span.begin;
  slice.end = span.end;
  slice.active = span.active;
  slice.name = name_index(program.labels[op.label]);
  slice.kind = kind_of(op, call);
  slice.microbatch = call.kind == CallKind::step ? -1 : call.microbatch;
  slice.chunk = call.chunk;
  if (call.kind == CallKind::pair && !is_forward(op, call)) {
    slice.microbatch = call.backward_microbatch;
    slice.chunk = call.backward_chunk;
  }
  const engine::Machine& machine = step_.lowered.machine;
  const engine::Actor& actor = machine.actors[rank_class.actor];
  if (op.kind == OpKind::collective) {
    slice.bytes = step_.plan.cast.transfer(op).bytes.count();
  } else if (op.kind != OpKind::compute) {
    const bool receives = op.kind == OpKind::receive;
    const engine::ChannelId channel = actor.channels[op.port];
    const engine::ActorId other =
        receives ? machine.channels[channel].source : machine.channels[channel].destination;
    slice.bytes = step_.plan.cast.transfer(op).bytes.count();
    for (const RankClass& peer : step_.lowered.classes)
      if (peer.actor == other) slice.peer = peer.representative;
    const std::uint64_t number = messages_[{static_cast<std::uint32_t>(channel), receives}]++;
    slice.flow = Hash().add(static_cast<std::uint64_t>(channel)).add(number).value() | 1;
  }
  return slice;
}

void TimelineBuilder::add_lanes(const RankClass& rank_class) {
  const plan::Role& role = step_.plan.cast.roles[static_cast<std::size_t>(rank_class.stage)];
  const Program& program = role.program;
  std::array<Lane, plan::kStreams> lanes;
  for (std::size_t s = 0; s < program.streams.size(); ++s) {
    lanes[s].rank = rank_class.representative;
    lanes[s].stage = rank_class.stage;
    if (!role.on_gpu()) lanes[s].role = role.name;
    lanes[s].stream = program.streams[s];
  }
  for (const Span& span : spans_of(trace_, rank_class.actor)) {
    const Op& op = program.blocks[program.calls[span.call].block].ops[span.op];
    // A receive that found its message there took no time: nothing to see.
    if (op.kind == OpKind::receive && span.begin == span.end) {
      slice(rank_class, span);
      continue;
    }
    lanes[op.stream].slices.push_back(slice(rank_class, span));
  }
  for (Lane& lane : lanes) {
    if (!lane.slices.empty()) timeline_.lanes.push_back(std::move(lane));
  }
}

void TimelineBuilder::add_memory(const RankClass& rank_class) {
  const Program& program =
      step_.plan.cast.roles[static_cast<std::size_t>(rank_class.stage)].program;
  MemoryCurve curve;
  curve.rank = rank_class.representative;
  curve.capacity = device_->capacity;
  std::array<std::int64_t, engine::kMaxCategories> held{};
  for (const engine::MemoryEffect& effect : program.resident)
    held[effect.category] += effect.bytes;
  curve.samples.push_back({Duration(0), device_->by_category(held)});
  for (const engine::MemoryChange& change : trace_.memory) {
    if (change.actor != rank_class.actor) continue;
    held[change.category] += change.bytes;
    if (curve.samples.back().at != change.at) curve.samples.push_back({change.at, {}});
    curve.samples.back().bytes = device_->by_category(held);
  }
  timeline_.memory.push_back(std::move(curve));
}

}  // namespace

Timeline timeline(const Step& step, int ranks_shown) {
  return TimelineBuilder(step).build(ranks_shown);
}

}  // namespace trainyard::simulate
