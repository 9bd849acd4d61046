#include "sim/engine/solo/solo_runner.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace trainyard::engine {

// Does to the state what the engine would have done at these instants.
class SoloRunner::Sink {
 public:
  Sink(SoloRunner& runner, ActorState& actor) : runner_(runner), actor_(actor) {}

  void begin(const SoloRun::Lane& lane, Duration now) {
    StreamState& stream = stream_of(lane);
    if (stream.op->takes) runner_.memory_.begin(stream, now, runner_.recorder_);
    stream.state = HeadState::running;
    stream.begin = now;
  }
  void end(const SoloRun::Lane& lane) {
    StreamState& stream = stream_of(lane);
    const CompiledOp& op = *stream.op;
    if (op.releases) runner_.memory_.end(stream, lane.end, runner_.recorder_);
    runner_.recorder_.op(stream, stream.begin, lane.end);
    if (op.kind != OpKind::compute)
      ++runner_.state_.edges[runner_.state_.edge_of(actor_, stream, op)].removed;
    actor_.finished = lane.end;
    ++stream.ended;
    stream.state = HeadState::blocked;
    runner_.state_.go_on(stream, actor_);
  }

 private:
  StreamState& stream_of(const SoloRun::Lane& lane) {
    return runner_.state_.streams[actor_.first_stream + lane.stream];
  }

  SoloRunner& runner_;
  ActorState& actor_;
};

SoloRunner::SoloRunner(RunState& state, EventQueue& queue, Recorder& recorder,
                       MemoryAccounts& memory, const RunOptions& options)
    : state_(state), queue_(queue), recorder_(recorder), memory_(memory) {
  const bool on = options.solos && options.record == Record::nothing &&
                  state.machine.share_beside_kernels == kFullShare &&
                  (options.observer == nullptr ||
                   (options.only_kernels_host_may_hold && options.observer->may_be_told_late()));
  if (!on) return;
  kind_of_.reserve(state.actors.size());
  for (std::uint32_t actor = 0; actor < state.actors.size(); ++actor)
    kind_of_.push_back(find_kind(actor));
  for (const auto& [of, solos] : solos_) {
    std::vector<CompiledOp>& ops = state.programs[of.first].ops;
    for (std::size_t op = 0; op < ops.size(); ++op)
      ops[op].enters_solo |= solos.entered_at(op) != Solos::kNone;
  }
}

std::uint32_t SoloRunner::find_kind(std::uint32_t number) {
  const ActorState& owner = state_.actors[number];
  const Actor& actor = state_.machine.actors[ActorId{number}];
  const CompiledProgram& program = *owner.compiled;
  std::uint64_t alone = 0;
  std::vector<const std::vector<Transfer>*> tables(program.columns);
  std::vector<std::uint64_t> key = {owner.times, static_cast<std::uint64_t>(actor.units)};
  for (std::uint32_t c = 0; c < std::min<std::uint32_t>(program.columns, 64); ++c) {
    const std::uint32_t port = program.collective_ports[c];
    if (port >= actor.communicators.size() || actor.communicators[port] == kNoCommunicator)
      continue;
    const Communicator& group = state_.machine.communicators[actor.communicators[port]];
    if (group.members.size() != 1 || !group.paths.empty()) continue;
    alone |= std::uint64_t{1} << c;
    tables[c] = &state_.machine.transfers[group.transfers];
    key.push_back(c);
    key.push_back(group.transfers);
  }
  const auto [kind, added] =
      known_kinds_.try_emplace(std::move(key), static_cast<std::uint32_t>(kinds_.size()));
  if (!added) return kind->second;
  const Solos& solos = solos_.try_emplace({owner.program, alone}, program, alone).first->second;
  kinds_.push_back({.kind = {.program = &program,
                             .solos = &solos,
                             .times = actor.times,
                             .work = owner.work,
                             .host = owner.host,
                             .tables = std::move(tables),
                             .units = actor.units},
                    .tables = std::vector<Table>(solos.all().size())});
  return kind->second;
}

const SoloRunner::Table& SoloRunner::table(Kind& kind, std::uint32_t number) {
  Table& table = kind.tables[number];
  if (!table.begin.empty()) return table;
  const CompiledProgram& program = *kind.kind.program;
  const Solo& solo = kind.kind.solos->all()[number];
  table.begin.resize(solo.last - solo.first + 1);
  table.lead.resize(table.begin.size());
  struct Writer {
    const CompiledProgram& program;
    const HostTimes& host;
    std::uint32_t first;
    Table& table;
    void begin(const SoloRun::Lane& lane, Duration now) {
      const std::size_t place = program.ops[lane.at].index - first;
      table.begin[place] = now;
      table.lead[place] = host.op[lane.at].done - now;
    }
    void end(const SoloRun::Lane&) {}
  } writer{program, *kind.kind.host, solo.first, table};
  std::uint32_t entry = 0;
  for (std::uint32_t s = 0; s < program.streams; ++s) {
    const std::size_t block = std::size_t{solo.block} * (program.streams + 1) + s;
    const std::uint32_t at = SoloRun::first_from(program, program.stream_begin[block],
                                                 program.stream_begin[block + 1], solo.first);
    if (at < program.stream_begin[block + 1] && program.ops[at].index == solo.first) entry = at;
  }
  table.lead.front() = kind.kind.host->op[entry].done;
  table.length = SoloRun(kind.kind, number, entry, Duration::zero()).finish(writer);
  for (std::size_t i = table.lead.size() - 1; i-- > 0;)
    table.lead[i] = std::max(table.lead[i], table.lead[i + 1]);
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
  const Table& times = table(kind, entered);
  const std::size_t place = stream.op->index - solo.first;
  const Duration call = owner.host->call[stream.head.call];
  if (call + times.lead[place] > stream.begin - times.begin[place]) return false;
  owner.solo = number;
  queue_.push({later(queue_.now(), times.length - times.begin[place]), number, ++stream.version,
               Phase::finish, kEndSolo});
  return true;
}

ActorState* SoloRunner::over(const Event& event) {
  const StreamState& stream = state_.streams[event.subject];
  ActorState& actor = state_.actors[stream.actor];
  return actor.solo == event.subject && stream.version == event.version ? &actor : nullptr;
}

SoloRun SoloRunner::carry_out(ActorState& actor) {
  const StreamState& head = state_.streams[std::exchange(actor.solo, kNone)];
  const SoloKind& kind = kinds_[kind_of_[head.actor]].kind;
  SoloRun run(kind, kind.solos->entered_at(head.head.at), head.head.at, head.begin);
  Sink sink(*this, actor);
  run.run(queue_.now(), sink);
  return run;
}

}  // namespace trainyard::engine
