#include "sim/engine/solo/solo_runner.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace trainyard::engine {

// Does to the state what the engine would have done at these instants.
class SoloRunner::Sink {
 public:
  Sink(SoloRunner& runner, ActorState& actor) : runner_(runner), actor_(actor) {}

  void begin(const SoloRun::Lane& lane, Duration now) { begin(lane.stream, now); }
  void end(const SoloRun::Lane& lane) { end(lane.stream, lane.end); }

  void begin(std::uint32_t number, Duration now) {
    StreamState& stream = runner_.state_.streams[actor_.first_stream + number];
    if (stream.op->takes) runner_.memory_.begin(stream, now, runner_.recorder_);
    stream.state = HeadState::running;
    stream.begin = now;
  }
  void end(std::uint32_t number, Duration now) {
    StreamState& stream = runner_.state_.streams[actor_.first_stream + number];
    const CompiledOp& op = *stream.op;
    if (op.releases) runner_.memory_.end(stream, now, runner_.recorder_);
    runner_.recorder_.op(stream, stream.begin, now);
    if (op.kind != OpKind::compute)
      runner_.count_collectives(stream.actor, runner_.state_.edge_of(actor_, stream, op), 1);
    actor_.finished = now;
    ++stream.ended;
    stream.state = HeadState::blocked;
    runner_.state_.go_on(stream, actor_);
  }

 private:
  SoloRunner& runner_;
  ActorState& actor_;
};

// Carries out ops of a solo one by one.
class SoloRunner::OpByOp {
 public:
  // Of one that was, or would have been, at its begin at `start`.
  OpByOp(const Kind& kind, std::uint32_t solo, Duration start, Sink& sink, SoloRest& rest)
      : kind_(kind.kind),
        solo_(solo),
        table_(kind.tables[solo]),
        start_(start),
        sink_(sink),
        rest_(rest) {}

  // From the begin of an op on, which has been carried out before if it has `begun`, until so long
  // after that of the solo. What runs then is the rest. Returns how often the sink was told.
  std::uint64_t run(std::uint32_t op, bool begun, Duration until) {
    const std::uint32_t place = kind_.program->ops[op].index - kind_.solos->all()[solo_].first;
    const std::uint32_t from = table_.told_begin[place];
    const std::uint32_t behind = table_.find_behind(from, until);
    forget();
    if (!find_running(behind))
      return run_again(op, begun, start_ + table_.begin[place], start_ + until);
    const std::uint32_t first = begun ? from + 1 : from;
    for (std::uint32_t i = first; i < behind; ++i) {
      const SoloTable::Told& told = table_.told[i];
      if (told.ends)
        sink_.end(told.stream, start_ + told.at);
      else
        sink_.begin(told.stream, start_ + told.at);
    }
    return behind - first;
  }
  // Nothing runs.
  void forget() {
    rest_.runs = 0;
    rest_.slowed.reset();
  }

 private:
  // What runs then, with its ends; false if it has a clock.
  bool find_running(std::uint32_t behind) {
    rest_.runs = table_.told[behind - 1].runs;
    std::size_t nth = 0;
    for (std::uint32_t bits = rest_.runs; bits != 0; bits &= bits - 1) {
      const SoloTable::Told& begun = table_.begin_of(std::countr_zero(bits), behind);
      if (begun.slowed) return false;
      rest_.end[nth++] = start_ + table_.end[begun.op];
    }
    return true;
  }
  // Kernels that transfers of the solo slow down stand where only a run of its own can tell.
  std::uint64_t run_again(std::uint32_t op, bool begun, Duration from, Duration until) {
    forget();
    SoloRun& run = rest_.slowed.emplace(kind_, solo_, op, from);
    if (!begun) sink_.begin(run.entry_lane(), from);
    run.run(until, sink_);
    return run.told() + (begun ? 0 : 1);
  }

  const SoloKind& kind_;
  std::uint32_t solo_;
  const SoloTable& table_;
  Duration start_;
  Sink& sink_;
  SoloRest& rest_;
};

SoloRunner::SoloRunner(RunState& state, EventQueue& queue, Recorder& recorder,
                       MemoryAccounts& memory, const RunOptions& options)
    : state_(state),
      queue_(queue),
      recorder_(recorder),
      memory_(memory),
      stretches_left_(options.most_stretches) {
  const bool on = options.solos && options.record == Record::nothing &&
                  state.machine.share_beside_kernels == kFullShare &&
                  (options.observer == nullptr ||
                   (options.only_kernels_host_may_hold && options.observer->may_be_told_late()));
  if (!on) return;
  groups_.emplace(state);
  kind_of_.reserve(state.actors.size());
  for (std::uint32_t actor = 0; actor < state.actors.size(); ++actor)
    kind_of_.push_back(find_kind(actor));
  for (const auto& [of, solos] : solos_) {
    std::vector<CompiledOp>& ops = state.programs[of.first].code->ops;
    for (std::size_t op = 0; op < ops.size(); ++op)
      ops[op].enters_solo |= solos.entered_at(op) != Solos::kNone;
  }
}

std::uint32_t SoloRunner::find_kind(std::uint32_t number) {
  const ActorState& owner = state_.actors[number];
  const Actor& actor = state_.machine.actors[ActorId{number}];
  const CompiledProgram& program = *owner.compiled;
  std::uint64_t alone = groups_->columns(number);
  std::vector<const std::vector<Transfer>*> tables(program.columns);
  std::vector<std::uint64_t> key = {owner.times, static_cast<std::uint64_t>(actor.units)};
  for (std::uint32_t c = 0; c < std::min<std::uint32_t>(program.columns, 64); ++c) {
    const std::uint32_t port = program.collective_ports[c];
    if (port >= actor.communicators.size() || actor.communicators[port] == kNoCommunicator)
      continue;
    const Communicator& group = state_.machine.communicators[actor.communicators[port]];
    const bool is_alone = group.members.size() == 1 && group.paths.empty();
    if (!is_alone && (alone >> c & 1) == 0) continue;
    alone |= std::uint64_t{1} << c;
    tables[c] = &state_.machine.transfers[group.transfers];
    key.push_back(c);
    key.push_back(group.transfers);
  }
  const auto [kind, added] =
      known_kinds_.try_emplace(std::move(key), static_cast<std::uint32_t>(kinds_.size()));
  if (!added) {
    kinds_[kind->second].is_told |= recorder_.tells_of(number);
    return kind->second;
  }
  const Solos& solos =
      solos_.try_emplace({state_.code_of[owner.program], alone}, program, alone).first->second;
  kinds_.emplace_back(SoloKind{.program = &program,
                               .solos = &solos,
                               .times = actor.times,
                               .work = owner.work,
                               .host = owner.host,
                               .tables = std::move(tables),
                               .units = actor.units},
                      next_leg_);
  kinds_.back().is_told = recorder_.tells_of(number);
  return kind->second;
}

const SoloTable& SoloRunner::table(Kind& kind, std::uint32_t number) {
  SoloTable& table = kind.tables[number];
  if (!table.begin.empty()) return table;
  table = solo_table(kind.kind, number, kind.is_told ? &kind.legs : nullptr);
  return table;
}

// Whether the other streams stand before their first op behind the entry.
bool SoloRunner::aligned(const ActorState& actor, const StreamState& head, const Solo& solo) const {
  const CompiledProgram& program = *actor.compiled;
  const CompiledOp& entry = *head.op;
  for (std::uint32_t bits = solo.streams & ~(1U << entry.stream); bits != 0; bits &= bits - 1) {
    const auto s = static_cast<std::uint32_t>(std::countr_zero(bits));
    const std::size_t block = std::size_t{solo.block} * (program.streams + 1) + s;
    const std::uint32_t at = SoloRun::first_from(program, program.stream_begin[block],
                                                 program.stream_begin[block + 1], entry.index);
    if (at == program.stream_begin[block + 1] || program.ops[at].index > solo.last) continue;
    const StreamState& other = state_.streams[actor.first_stream + s];
    if (other.state != HeadState::blocked || other.head.call != head.head.call ||
        other.head.at != at)
      return false;
  }
  return true;
}

bool SoloRunner::begin(std::uint32_t number) {
  StreamState& stream = state_.streams[number];
  ActorState& owner = state_.actors[stream.actor];
  if (owner.taken != 0 || owner.computing_on != 0) return false;
  Kind& kind = kinds_[kind_of_[stream.actor]];
  const std::uint32_t entered = kind.kind.solos->entered_at(stream.head.at);
  if (entered == Solos::kNone) return false;
  const Solo& solo = kind.kind.solos->all()[entered];
  if (!aligned(owner, stream, solo)) return false;
  const SoloTable& times = table(kind, entered);
  const std::size_t place = stream.op->index - solo.first;
  const Duration call = owner.host->call[stream.head.call];
  if (call + times.lead[place] > queue_.now() - times.begin[place]) return false;
  if ((solo.columns & groups_->columns(stream.actor)) != 0 && !begin_together(number, solo))
    return false;
  stream.state = HeadState::running;
  stream.begin = queue_.now();
  owner.solo = number;
  queue_.push({later(queue_.now(), times.length - times.begin[place]), number, ++stream.version,
               Phase::finish, kEndSolo});
  return true;
}

// The others have begun with an event each.
bool SoloRunner::begin_together(std::uint32_t number, const Solo& solo) {
  const StreamState& own = state_.streams[number];
  if (own.op->kind != OpKind::compute || !groups_->is_last(own.actor, queue_.now(), own.head))
    return false;
  const std::uint32_t s = own.op->stream;
  const std::span<const ActorId> members = groups_->members(own.actor);
  for (const ActorId member : members) {
    if (index(member) == own.actor) continue;
    const ActorState& actor = state_.actors[index(member)];
    const StreamState& stream = state_.streams[actor.first_stream + s];
    if (actor.solo != kNone || actor.taken != 0 || actor.computing_on != 1U << s ||
        stream.state != HeadState::running || stream.begin != queue_.now() ||
        stream.head.call != own.head.call || stream.head.at != own.head.at ||
        stream.slot != kNone || !aligned(actor, stream, solo))
      return false;
  }
  for (const ActorId member : members) {
    if (index(member) == own.actor) continue;
    ActorState& actor = state_.actors[index(member)];
    actor.computing_on = 0;
    actor.solo = actor.first_stream + s;
    actor.solo_begun = true;
    ++state_.streams[actor.solo].version;  // its end is none
  }
  return true;
}

std::span<const ActorId> SoloRunner::together(const ActorState& actor) const {
  const StreamState& head = state_.streams[actor.solo];
  const SoloKind& kind = kinds_[kind_of_[head.actor]].kind;
  const Solo& solo = kind.solos->all()[kind.solos->entered_at(head.head.at)];
  if ((solo.columns & groups_->columns(head.actor)) == 0) return {};
  return groups_->members(head.actor);
}

// An exchange that ends for all of its members is over once.
void SoloRunner::count_collectives(std::uint32_t actor, std::uint32_t edge, std::uint32_t count) {
  if (index(state_.communicator(edge).members.front()) == actor)
    state_.edges[edge].removed += count;
}

ActorState* SoloRunner::over(const Event& event) {
  const StreamState& stream = state_.streams[event.subject];
  ActorState& actor = state_.actors[stream.actor];
  return actor.solo == event.subject && stream.version == event.version ? &actor : nullptr;
}

void SoloRunner::go_through(const SoloEffect& effect, ActorState& actor) {
  const CompiledProgram& program = *actor.compiled;
  const StreamState& any = state_.streams[actor.first_stream];
  for (const SoloEffect::Collectives& of : effect.collectives) {
    const CompiledOp& op = program.ops[of.op];
    std::uint32_t& edge = state_.edge_numbers[actor.first_edge + op.column];
    if (edge == kNone) edge = state_.edge_of(state_.actor(any), op);
    count_collectives(any.actor, edge, of.count);
  }
  for (const SoloEffect::Lane& lane : effect.lanes) {
    StreamState& stream = state_.streams[actor.first_stream + lane.stream];
    const std::uint32_t ops = lane.until - stream.head.at;
    stream.state = HeadState::blocked;
    stream.ended += ops;
    stream.head.at += ops;
    stream.op += ops;
    if (stream.head.at == stream.head.last)
      RunState::seek(stream, program, lane.stream, stream.head.call + 1);
  }
}

void SoloRunner::pass(const SoloStretch& stretch, ActorState& actor, Duration start,
                      SoloRest& rest) {
  const std::uint32_t owner = state_.streams[actor.first_stream].actor;
  memory_.pass(owner, stretch.effect.memory, start + stretch.begin);
  go_through(stretch.effect, actor);
  if (!stretch.effect.lanes.empty()) actor.finished = start + stretch.ended;
  std::size_t nth = 0;
  for_each_stream(state_, actor, stretch.runs, [&](std::uint32_t, StreamState& stream) {
    stream.state = HeadState::running;
    stream.begin = start + stretch.running[nth].begin;
    rest.end[nth] = start + stretch.running[nth].end;
    ++nth;
  });
  if (stretch.slowed != nullptr)
    rest.slowed.emplace(*stretch.slowed).move_on(start);
  else
    rest.runs = stretch.runs;
}

// As one stretch; if somebody is told, whole legs at once and op by op what is before and behind.
SoloRest SoloRunner::carry_out(ActorState& actor, std::uint64_t& events) {
  StreamState& head = state_.streams[std::exchange(actor.solo, kNone)];
  const bool has_begun = std::exchange(actor.solo_begun, false);
  if (!has_begun) head.state = HeadState::blocked;  // until that is carried out
  const std::uint32_t owner = head.actor, call = head.head.call, entry = head.head.at;
  Kind& kind = kinds_[kind_of_[owner]];
  const std::uint32_t number = kind.kind.solos->entered_at(entry);
  const Solo& solo = kind.kind.solos->all()[number];
  const SoloTable& table = kind.tables[number];
  const Duration entered = table.begin[head.op->index - solo.first];
  const Duration start = head.begin - entered;  // had it begun with its first op
  const Duration until = queue_.now() - start;
  SoloRest rest;
  rest.call = call;
  rest.streams = solo.streams;
  if (!recorder_.tells_of(owner)) {
    const std::uint32_t from = table.told_begin[head.op->index - solo.first];
    const std::uint32_t behind = table.find_behind(from, until);
    const SoloStretches::Cut cut{from, behind, has_begun, table.told[behind - 1].at == until};
    if (const SoloStretch* stretch =
            kind.stretches[number].find(kind.kind, number, table, cut, stretches_left_)) {
      pass(*stretch, actor, start, rest);
      events += stretch->effect.told;
      return rest;
    }
  }
  Sink sink(*this, actor);
  OpByOp ops(kind, number, start, sink, rest);
  const auto is_over = [&](const SoloLeg& leg) {
    return leg.next == SoloLeg::kNone ? leg.end <= until : leg.end < until;
  };
  auto leg = std::partition_point(table.legs.begin(), table.legs.end(), [&](const SoloLeg& of) {
    return of.begin < entered || (has_begun && of.begin == entered);
  });
  if (leg == table.legs.end() || !is_over(*leg)) {
    events += ops.run(entry, has_begun, until);
    return rest;
  }
  if (entered < leg->begin) events += ops.run(entry, has_begun, leg->begin);
  const bool is_told = recorder_.tells_of(owner);
  std::uint32_t next = entry;
  for (; leg != table.legs.end() && is_over(*leg); ++leg) {
    next = leg->next;
    const auto whole = [&]() -> Leg {
      return {.id = leg->id,
              .actor = ActorId{owner},
              .call = call,
              .first = actor.compiled->ops[leg->first].index,
              .last = leg->last,
              .begin = start + leg->begin,
              .end = start + leg->end};
    };
    if (!is_told || recorder_.leg_begins(whole())) {
      memory_.pass(owner, leg->effect.memory, start + leg->begin);
      go_through(leg->effect, actor);
      actor.finished = start + leg->end;
      events += leg->effect.told;
      continue;
    }
    events += ops.run(leg->first, false, leg->end);
    recorder_.leg_ended(whole());
  }
  ops.forget();
  if (next != SoloLeg::kNone) events += ops.run(next, false, until);
  return rest;
}

}  // namespace trainyard::engine
