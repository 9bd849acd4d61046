#include "sim/simulate/report/timeline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>

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

class TimelineBuilder {
 public:
  explicit TimelineBuilder(const Step& step)
      : step_(step),
        trace_(step.trace()),
        shown_as_(step.lowered.machine.actors.size(), -1),
        messages_(step.lowered.machine.channels.size()) {
    for (const RankClass& rank_class : step.lowered.classes)
      shown_as_[index(rank_class.actor)] = rank_class.representative;
  }

  Timeline build(const TimelineLimits& limits) {
    timeline_.end = trace_.end;
    if (!step_.jobs.empty()) {  // others go on
      timeline_.end = Duration(0);
      for (const RankClass& rank_class : step_.lowered.classes)
        timeline_.end = std::max(timeline_.end, trace_.finished[rank_class.actor]);
    }
    timeline_.ranks_total = static_cast<int>(step_.lowered.class_of_rank.size());
    const ShownClasses classes = shown_classes(step_.lowered, step_.plan.cast, limits);
    for (const std::size_t c : classes.shown) {
      const RankClass& rank_class = step_.lowered.classes[c];
      name_labels(rank_class.role);
      timeline_.ranks_shown.push_back(rank_class.representative);
      add_lanes(rank_class);
    }
    for (const std::size_t c : classes.left_out) {
      timeline_.ranks_left_out.push_back(step_.lowered.classes[c].representative);
      timeline_.stages_left_out.push_back(step_.lowered.classes[c].stage);
    }
    timeline_.ops_left_out = classes.ops_left_out;
    add_memory(classes.shown);
    return std::move(timeline_);
  }

 private:
  void add_lanes(const RankClass& rank_class);
  void add_memory(const std::vector<std::size_t>& classes);
  Slice slice(const RankClass& rank_class, const Span& span);
  const plan::Role& role_of(const RankClass& rank_class) const {
    return step_.plan.cast.roles[static_cast<std::size_t>(rank_class.role)];
  }
  // Labels of a role, known from now on by their first use.
  void name_labels(int role) {
    labels_ = &names_of_labels_[role];
    labels_->resize(step_.plan.cast.roles[static_cast<std::size_t>(role)].program.labels.size(),
                    kNone);
  }
  std::uint32_t name_of(const Program& program, std::uint32_t label) {
    std::uint32_t& known = (*labels_)[label];
    if (known != kNone) return known;
    const auto next = static_cast<std::uint32_t>(timeline_.names.size());
    const auto [at, added] = name_index_.try_emplace(program.labels[label], next);
    if (added) timeline_.names.push_back(program.labels[label]);
    return known = at->second;
  }
  // How many slices each lane will have at most.
  static void reserve(const Program& program, std::span<const Span> spans,
                      std::array<Lane, plan::kStreams>& lanes);

  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  const Step& step_;
  const engine::Trace& trace_;
  Timeline timeline_;
  std::map<std::string, std::uint32_t> name_index_;
  std::map<int, std::vector<std::uint32_t>> names_of_labels_;  // by stage
  std::vector<std::uint32_t>* labels_ = nullptr;               // of the class in hand
  std::vector<int> shown_as_;                                  // by actor: its representative
  // So far, by channel and end.
  std::vector<std::array<std::uint64_t, 2>> messages_;
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
    case OpGroup::input: return SliceKind::input;
    case OpGroup::compute: break;
  }
  return is_forward(op, call) ? SliceKind::forward : SliceKind::backward;
}

Slice TimelineBuilder::slice(const RankClass& rank_class, const Span& span) {
  const plan::Role& stage = role_of(rank_class);
  const Program& program = stage.program;
  const Op& op = program.op(span.call, span.op);
  const CallInfo& call = stage.calls[span.call];
  Slice slice;
  slice.begin = span.begin;
  slice.end = span.end;
  slice.active = span.active;
  slice.name = name_of(program, op.label);
  slice.kind = kind_of(op, call);
  slice.microbatch = call.kind == CallKind::step ? -1 : call.microbatch;
  slice.chunk = call.chunk;
  if (call.kind == CallKind::pair && !is_forward(op, call)) {
    slice.microbatch = call.backward_microbatch;
    slice.chunk = call.backward_chunk;
  }
  const engine::Machine& machine = step_.lowered.machine;
  const engine::Actor& actor = machine.actors[rank_class.actor];
  if (op.kind == OpKind::collective || op.kind == OpKind::hear) {
    slice.bytes = step_.plan.cast.transfer(op).bytes.count();
  } else if (op.kind != OpKind::compute) {
    const bool receives = op.kind == OpKind::receive;
    const engine::ChannelId channel = actor.channels[op.port];
    const engine::ActorId other =
        receives ? machine.channels[channel].source : machine.channels[channel].destination;
    slice.bytes = step_.plan.cast.transfer(op).bytes.count();
    slice.peer = shown_as_[index(other)];
    const std::uint64_t number = messages_[index(channel)][receives ? 1 : 0]++;
    slice.flow = Hash().add(static_cast<std::uint64_t>(channel)).add(number).value() | 1;
  }
  return slice;
}

void TimelineBuilder::reserve(const Program& program, std::span<const Span> spans,
                              std::array<Lane, plan::kStreams>& lanes) {
  std::array<std::size_t, plan::kStreams> counts{};
  for (const Span& span : spans)
    ++counts[program.op(span.call, span.op).stream];
  for (std::size_t s = 0; s < counts.size(); ++s)
    lanes[s].slices.reserve(counts[s]);
}

void TimelineBuilder::add_lanes(const RankClass& rank_class) {
  const plan::Role& role = role_of(rank_class);
  const Program& program = role.program;
  std::array<Lane, plan::kStreams> lanes;
  for (std::size_t s = 0; s < program.streams.size(); ++s) {
    lanes[s].rank = rank_class.representative;
    lanes[s].stage = rank_class.stage;
    if (!role.on_gpu()) lanes[s].role = role.name;
    lanes[s].stream = program.streams[s];
  }
  const std::span<const Span> spans = spans_of(trace_, rank_class.actor);
  reserve(program, spans, lanes);
  for (const Span& span : spans) {
    const Op& op = program.op(span.call, span.op);
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

void TimelineBuilder::add_memory(const std::vector<std::size_t>& classes) {
  struct Held {
    const DeviceMemory* device = nullptr;
    std::array<std::int64_t, engine::kMaxCategories> bytes{};
    std::size_t changes = 0;
  };
  std::vector<Held> held(classes.size());
  std::vector<std::uint32_t> curve_of(trace_.peaks.size(), kNone);
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const RankClass& rank_class = step_.lowered.classes[classes[i]];
    curve_of[index(rank_class.actor)] = static_cast<std::uint32_t>(i);
    held[i].device = &step_.devices[classes[i]];
    for (const engine::MemoryEffect& effect : role_of(rank_class).program.resident)
      held[i].bytes[effect.category] += effect.bytes;
    MemoryCurve& curve = timeline_.memory.emplace_back();
    curve.rank = rank_class.representative;
    curve.capacity = held[i].device->capacity;
  }
  for (const engine::MemoryChange& change : trace_.memory)
    if (curve_of[index(change.actor)] != kNone) ++held[curve_of[index(change.actor)]].changes;
  for (std::size_t i = 0; i < held.size(); ++i) {
    timeline_.memory[i].samples.reserve(held[i].changes + 1);
    timeline_.memory[i].samples.push_back({});
  }
  // A sample is made when its instant is over.
  const auto settle = [&](std::size_t i) {
    timeline_.memory[i].samples.back().bytes = held[i].device->by_category(held[i].bytes);
  };
  for (const engine::MemoryChange& change : trace_.memory) {
    const std::uint32_t i = curve_of[index(change.actor)];
    if (i == kNone) continue;
    std::vector<MemorySample>& samples = timeline_.memory[i].samples;
    if (samples.back().at != change.at) {
      settle(i);
      samples.push_back({change.at, {}});
    }
    held[i].bytes[change.category] += change.bytes;
  }
  for (std::size_t i = 0; i < held.size(); ++i)
    settle(i);
}

}  // namespace

Timeline timeline(const Step& step, const TimelineLimits& limits) {
  return TimelineBuilder(step).build(limits);
}

}  // namespace trainyard::simulate
