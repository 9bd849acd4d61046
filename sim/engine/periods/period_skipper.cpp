#include "sim/engine/periods/period_skipper.h"

#include <algorithm>
#include <utility>

#include "sim/engine/periods/repetition.h"

namespace trainyard::engine {
namespace {

// States that are compared with the present one, and how many words they may hold together.
constexpr std::size_t kMostRecent = 64;
constexpr std::size_t kMostWords = 1 << 18;

// The stream with most ops, of equals the last: in a pipeline the last stage has the shortest
// warm-up.
std::uint32_t busiest_stream(const RunState& state) {
  std::uint32_t busiest = kNone, most = 0;
  for (const ActorState& actor : state.actors) {
    const std::vector<std::uint32_t>& ops = state.programs[actor.program].stream_ops;
    for (std::uint32_t s = 0; s < actor.streams; ++s) {
      if (ops[s] < most || ops[s] == 0) continue;
      if (ops[s] == most && state.streams[busiest].actor == state.streams[actor.first_stream].actor)
        continue;
      most = ops[s];
      busiest = actor.first_stream + s;
    }
  }
  return busiest;
}

}  // namespace

PeriodSkipper::PeriodSkipper(RunState& state, EventQueue& queue, FlowNetwork& network,
                             MemoryAccounts& memory, ComputeRunner& compute,
                             const RunOptions& options)
    : state_(state),
      queue_(queue),
      network_(network),
      memory_(memory),
      compute_(compute),
      observer_(options.observer) {
  if (options.skip_periods && options.record == Record::nothing && state.machine.inboxes.empty())
    watched_ = busiest_stream(state);
}

std::optional<Period> PeriodSkipper::find_period() const {
  const auto found = [&](const StateImage& before) -> std::optional<Period> {
    return before.hash == present_.hash ? find_repetition(state_, before, present_) : std::nullopt;
  };
  for (std::size_t i = 0; i < recent_.size(); ++i)  // the latest first
    if (const auto period = found(recent_[(next_ + recent_.size() - 1 - i) % recent_.size()]))
      return period;
  return has_kept_ ? found(kept_) : std::nullopt;
}

void PeriodSkipper::keep() {
  if (!has_kept_ || ++age_ == power_) {
    if (has_kept_) power_ *= 2;
    age_ = 0;
    has_kept_ = true;
    kept_ = present_;
  }
  if (recent_.size() < std::min(kMostRecent, kMostWords / (1 + present_.same.size()))) {
    next_ = 0;
    recent_.push_back(present_);
    return;
  }
  if (recent_.empty()) return;
  std::swap(recent_[next_], present_);
  next_ = (next_ + 1) % recent_.size();
}

// Whether the heads of all streams are what they were at an earlier look.
bool PeriodSkipper::stood_here() {
  std::uint64_t hash = 0;
  for (const StreamState& stream : state_.streams)
    hash =
        mixed(hash, std::uint64_t{stream.head.at} << 8 | static_cast<std::uint64_t>(stream.state));
  return !stood_.insert(hash).second;
}

void PeriodSkipper::look(Duration& last, std::uint64_t& events) {
  is_due_ = false;
  // A look costs as much as an event of every few streams.
  if (events - seen_events_ < state_.streams.size() / 8) return;
  seen_events_ = events;
  if (!stood_here()) return;
  present_.clear(queue_.now(), state_.actors.size());
  StateWalk reading(present_);
  if (!walk(reading, last, events)) return;
  present_.find_hash();
  const std::optional<Period> period = find_period();
  if (!period) return keep();
  const std::uint64_t before = events;
  StateWalk moving(*period);
  walk(moving, last, events);
  skipped_ += events - before;
  seen_events_ = events;
  recent_.clear();
  next_ = 0;
  has_kept_ = false;
  power_ = 1;
  age_ = 0;
}

// False if the observer does not take part. Everything that an event looks at is in here: a new
// member of the engine's state belongs here, too.
bool PeriodSkipper::walk(StateWalk& walk, Duration& last, std::uint64_t& events) {
  if (observer_ != nullptr && !observer_->walk(walk)) return false;
  for (std::uint32_t actor = 0; actor < state_.actors.size(); ++actor)
    walk_actor(walk, actor);
  memory_.walk(walk);
  for (std::uint32_t edge = 0; edge < state_.edges.size(); ++edge)
    walk_edge(walk, edge);
  walk.same(-1);  // no edge
  network_.walk(walk, [&](std::uint32_t slot) { see_exchange(walk, slot); });
  walk.moment(last);
  walk.sum(events);
  walk_events(walk);
  return true;
}

void PeriodSkipper::walk_actor(StateWalk& walk, std::uint32_t number) {
  ActorState& actor = state_.actors[number];
  walk.same(actor.taken);
  walk.same(actor.computing);
  walk.same(actor.solo == kNone ? -1 : std::int64_t{actor.solo} - actor.first_stream);
  walk.same(actor.solo_begun ? 1 : 0);
  walk.moment(actor.finished);
  for (std::uint32_t s = actor.first_stream; s < actor.first_stream + actor.streams; ++s)
    walk_head(walk, state_.streams[s], actor.solo == s);
  if (actor.computing > 0) walk.carry(actor.busy_since);
}

// What has happened in a solo follows from its begin.
void PeriodSkipper::walk_head(StateWalk& walk, StreamState& stream, bool in_solo) {
  if (stream.state == HeadState::running) {
    const CompiledOp& op = state_.op(stream);
    if (in_solo) {
      walk.same(0);
    } else if (op.kind != OpKind::compute) {
      see_exchange(walk, stream.slot);
    } else {
      const KernelSequence kernels = state_.kernels(stream);
      walk.same(kernels.count > 0 && kernels.issued(kernels.count - 1) > stream.begin ? 1 : 0);
      walk.same(stream.slot == kNone ? 0 : 1);
      if (stream.slot != kNone) compute_.walk(walk, stream.slot);
      walk.same(stream.is_late ? 1 : 0);
      walk.same(stream.end_beside);
    }
    walk.moment(stream.begin);
  }
  walk.stream(stream.head.call, stream.head.at, stream.ended,
              static_cast<std::uint8_t>(stream.state));
  // Whom it wakes is asked again: too early is as good as in time.
  if (!walk.reads()) stream.wakes_at = 0;
}

// By its place among those of its edge that are not over, which does not change with time.
void PeriodSkipper::see_exchange(StateWalk& walk, std::uint32_t slot) const {
  const Exchange& exchange = state_.exchanges[slot];
  walk.same(exchange.edge);
  walk.same(std::int64_t{exchange.sequence} - state_.edges[exchange.edge].removed);
}

// How long kernels have run on whom an exchange of the edge waits for.
Duration PeriodSkipper::busy(std::uint32_t edge) const {
  const ActorId id = state_.is_channel(edge) ? state_.channel(edge).source
                                             : state_.communicator(edge).members.front();
  const ActorState& actor = state_.actors[index(id)];
  return actor.computing > 0 ? actor.busy + (queue_.now() - actor.busy_since) : actor.busy;
}

void PeriodSkipper::walk_edge(StateWalk& walk, std::uint32_t number) {
  RunState::Edge& edge = state_.edges[number];
  const std::uint32_t removed = edge.removed;
  walk.sum(edge.removed);
  for (std::uint32_t x = edge.first; x != kNone; x = state_.exchanges[x].next) {
    Exchange& exchange = state_.exchanges[x];
    see_exchange(walk, x);
    exchange.sequence += edge.removed - removed;
    for (const std::uint32_t value :
         {exchange.subject, exchange.expected, exchange.arrived, exchange.receiver,
          exchange.flows_left, std::uint32_t{exchange.mismatch}})
      walk.same(value);
    walk.same(static_cast<std::int64_t>(exchange.state));
    walk.same(exchange.first == kNone ? 0 : 1);
    const bool is_channel = state_.is_channel(number);
    for (std::uint32_t s = exchange.first; s != kNone; s = state_.streams[s].next) {
      walk.same(s);
      if (is_channel) break;
    }
    if (exchange.state == ExchangeState::gathering) continue;
    walk.moment(exchange.active);
    if (exchange.state == ExchangeState::in_flight)
      walk.same((exchange.busy - busy(number)).count());
  }
}

void PeriodSkipper::walk_events(StateWalk& walk) {
  if (!walk.reads()) return queue_.move_on(walk.shift());
  queue_.pending(pending_);
  for (const Event& event : pending_) {
    walk.same((event.at - queue_.now()).count());
    walk.same(static_cast<std::int64_t>(event.phase));
    walk.same(event.kind);
    switch (static_cast<EventKind>(event.kind)) {
      case kEndCompute:
      case kEndSolo:
        walk.same(event.subject);
        walk.same(event.version == state_.streams[event.subject].version ? 1 : 0);
        break;
      case kEndExchange:
      case kJoinNetwork: see_exchange(walk, event.subject); break;
      case kBegin:
      case kEndReceive:
      case kEndHear: walk.same(event.subject); break;
    }
  }
}

}  // namespace trainyard::engine
