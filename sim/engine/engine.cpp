#include "sim/engine/engine.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "sim/base/check.h"
#include "sim/engine/compute/beside_kernels.h"
#include "sim/engine/compute/compute_runner.h"
#include "sim/engine/deadlock.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/flow_network.h"
#include "sim/engine/flows/incremental_max_min.h"
#include "sim/engine/memory_accounts.h"
#include "sim/engine/peak_owners.h"
#include "sim/engine/periods/period_skipper.h"
#include "sim/engine/recorder.h"
#include "sim/engine/run_state.h"
#include "sim/engine/solo/solo_runner.h"
#include "sim/engine/transfer_time.h"

namespace trainyard::engine {
namespace {

std::unique_ptr<RateGroups> rate_groups(const Machine& machine, const RunOptions& options) {
  if (options.sharing != nullptr) return each_alone(machine.link_capacity, *options.sharing);
  return std::make_unique<IncrementalMaxMin>(machine.link_capacity);
}

// At least a byte, as a path of less is none.
Bytes of_load(Bytes bytes, std::uint32_t load) {
  if (load == kFullLoad) return bytes;
  const Int128 carried = Int128{bytes.count()} * load / kFullLoad;
  return Bytes(std::max<std::int64_t>(1, static_cast<std::int64_t>(carried)));
}

// Of many actors that do the same at once, memory brings the next while one is looked after.
// Inlined, as a call without an effect would be left out.
[[gnu::always_inline]] inline void fetch_ahead(std::span<const EventQueue::Item> events,
                                               const RunState& state) {
  const auto of_stream = [](const EventQueue::Item& event) {
    return event.kind == kBegin || event.kind == kEndCompute;
  };
  if (events.size() > 8 && of_stream(events[8]))
    __builtin_prefetch(&state.streams[events[8].subject], 1);
  if (events.size() > 4 && of_stream(events[4]))
    __builtin_prefetch(&state.actors[state.streams[events[4].subject].actor], 1);
}

class Engine {
 public:
  Engine(const Machine& machine, const RunOptions& options)
      : state_(machine),
        recorder_(state_, options),
        beside_(state_, queue_),
        network_(rate_groups(machine, options)),
        memory_(state_, recorder_),
        compute_(state_, queue_, recorder_, kEndCompute),
        solos_(state_, queue_, recorder_, memory_, options),
        periods_(state_, queue_, network_, memory_, compute_, options),
        // A thousand actors in step do a thousand things at once without going round in circles.
        budget_(options.max_events_per_instant * (1 + machine.actors.size() / 1024)),
        most_events_(budget_) {}

  Outcome run() {
    for (std::uint32_t s = 0; s < state_.streams.size(); ++s)
      look_at_head(s);
    for (;;) {
      if (queue_.instant_is_over() && !reshare_due_) {
        const bool has_flows = network_.next_end() != FlowNetwork::kNever;
        if (!has_flows && queue_.empty()) return conclude();
        if (periods_.is_due()) periods_.look(last_, happened_);
        queue_.advance(queue_.empty() ? network_.next_end()
                                      : std::min(network_.next_end(), queue_.next()));
        if (queue_.now() != instant_) {
          instant_ = queue_.now();
          most_events_ =
              events_ + std::min(budget_, std::numeric_limits<std::uint64_t>::max() - events_);
        }
      }
      if (network_.next_end() <= queue_.now()) {
        for (const std::uint32_t owner : network_.finish()) {
          if (!count_event()) return give_up();
          ++happened_;
          reshare_due_ = true;
          if (--state_.exchanges[owner].flows_left == 0) end_exchange(owner);
        }
        continue;
      }
      while (!queue_.instant_is_over()) {
        fetch_ahead(queue_.upcoming(), state_);
        const Event event = queue_.pop_present();
        if (!count_event()) return give_up();
        handle(event);
      }
      if (!reshare_due_) continue;
      if (!count_event()) return give_up();
      reshare();
    }
  }

 private:
  // False if there are so many at this instant that things go round in circles.
  bool count_event() { return ++events_ <= most_events_; }

  void handle(const Event& event) {
    switch (static_cast<EventKind>(event.kind)) {
      case kEndCompute:
        if (compute_.finish(event.subject, event.version))
          end(event.subject, state_.streams[event.subject].begin);
        break;
      case kBegin: begin(event.subject); break;
      case kEndReceive:
        state_.remove(state_.streams[event.subject].slot);
        end(event.subject, state_.streams[event.subject].begin);
        break;
      case kEndHear: end(event.subject, queue_.now()); break;
      case kEndExchange: end_exchange(event.subject); break;
      case kEndSolo:
        if (ActorState* actor = solos_.over(event)) leave_solo(*actor);
        break;
      case kJoinNetwork: join_network(event.subject); break;
    }
  }

  // Streams.

  // Finds out when the head of a stream can begin, if that is known yet.
  void look_at_head(std::uint32_t number) {
    StreamState& stream = state_.streams[number];
    const ActorState& owner = state_.actors[stream.actor];
    if (stream.op == nullptr) {
      stream.state = HeadState::done;
      return;
    }
    if (!state_.waits_met(number, owner, stream)) {
      stream.state = HeadState::blocked;
      return;
    }
    stream.state = HeadState::due;
    const Duration issued = state_.host_times_of(owner, stream).issued;
    if (issued > queue_.now())
      queue_.push({issued, number, 0, Phase::start, kBegin});
    else
      queue_.push_now(Phase::start, kBegin, number);
  }

  void begin(std::uint32_t number) {
    StreamState& stream = state_.streams[number];
    ActorState& owner = state_.actors[stream.actor];
    stop_solo(owner);
    last_ = queue_.now();
    const CompiledOp& op = state_.op(stream);
    if (op.enters_solo && solos_.begin(number)) return;
    if (op.takes) memory_.begin(stream, queue_.now(), recorder_);  // while it does not run yet
    stream.state = HeadState::running;
    stream.begin = queue_.now();
    ++happened_;
    if (op.kind == OpKind::compute) {
      beside_.count(owner, +1);
      owner.computing_on |= 1U << op.stream;
      compute_.begin(number, stream, owner, op);
      return;
    }
    switch (op.kind) {
      case OpKind::compute: break;
      case OpKind::collective: begin_collective(number); break;
      case OpKind::send: begin_send(number); break;
      case OpKind::receive: begin_receive(number); break;
      case OpKind::hear:
        if (state_.hear(number)) queue_.push_now(Phase::finish, kEndHear, number);
        break;
    }
  }

  void end(std::uint32_t number, Duration active) {
    StreamState& stream = state_.streams[number];
    ActorState& owner = state_.actors[stream.actor];
    stop_solo(owner);
    const CompiledOp& op = state_.op(stream);
    if (op.kind == OpKind::compute) {
      beside_.count(owner, -1);
      owner.computing_on &= ~(1U << op.stream);
    }
    if (op.releases) memory_.end(stream, queue_.now(), recorder_);
    recorder_.op(stream, active, queue_.now());
    owner.finished = last_ = queue_.now();
    ++happened_;
    ++stream.ended;
    stream.slot = kNone;
    const std::uint32_t call = stream.head.call;
    state_.go_on(stream, owner);
    if (stream.head.call != call) periods_.called(number);
    look_at_head(number);
    if (stream.ended >= stream.wakes_at) wake_waiters(stream, owner.first_stream);
  }

  void wake_waiters(StreamState& stream, std::uint32_t first_stream) {
    stream.wakes_at = kNone;
    std::uint32_t waiters = std::exchange(stream.waiters, 0);
    for (; waiters != 0; waiters &= waiters - 1) {
      const std::uint32_t other =
          first_stream + static_cast<std::uint32_t>(std::countr_zero(waiters));
      if (const std::uint32_t needed = state_.needs[other]; stream.ended < needed) {
        stream.waiters |= waiters & -waiters;
        stream.wakes_at = std::min(stream.wakes_at, needed);
      } else {
        look_at_head(other);
      }
    }
  }

  // Before anything else touches the actor.
  void stop_solo(ActorState& actor) {
    if (actor.solo != kNone) [[unlikely]]
      leave_solo(actor);
  }

  // The actor's solo is over, or has to go on with an event each, and those of all who are in step
  // with it.
  [[gnu::noinline]] void leave_solo(ActorState& actor) {
    const std::span<const ActorId> together = solos_.together(actor);
    if (together.empty()) return go_on_after(actor, solos_.carry_out(actor, happened_));
    std::vector<SoloRest> rests;
    for (const ActorId member : together)
      rests.push_back(solos_.carry_out(state_.actors[index(member)], happened_));
    for (std::size_t i = 0; i < rests.size(); ++i)
      go_on_after(state_.actors[index(together[i])], rests[i]);
  }

  void go_on_after(ActorState& actor, const SoloRest& rest) {
    last_ = std::max(last_, actor.finished);
    std::uint32_t runs = rest.runs;
    std::size_t nth = 0;
    for_each_stream(state_, actor, runs, [&](std::uint32_t number, StreamState&) {
      resume(number, actor, rest.end[nth++], nullptr);
    });
    if (rest.slowed) {
      for (const SoloRun::Lane& lane : rest.slowed->lanes()) {
        if (!lane.runs) continue;
        runs |= 1U << lane.stream;
        resume(actor.first_stream + lane.stream, actor, lane.end, lane.find_clock());
      }
      if (!rest.slowed->is_settled()) mind_rate(actor);
    }
    for_each_stream(state_, actor, rest.streams, [&](std::uint32_t number, StreamState& stream) {
      stream.waiters &= ~rest.streams;
      if (stream.head.call != rest.call) periods_.called(number);
    });
    for_each_stream(state_, actor, rest.streams & ~runs,
                    [&](std::uint32_t number, StreamState&) { look_at_head(number); });
    for_each_stream(state_, actor, rest.streams, [&](std::uint32_t, StreamState& stream) {
      if (stream.ended >= stream.wakes_at) wake_waiters(stream, actor.first_stream);
    });
  }

  // The head of the stream has begun in a solo and goes on until `end` if nothing changes. `clock`:
  // of a kernel that was slowed down there, else null.
  void resume(std::uint32_t number, ActorState& actor, Duration end, const KernelClock* clock) {
    StreamState& stream = state_.streams[number];
    if (stream.op->kind == OpKind::compute) {
      actor.computing_on |= 1U << stream.op->stream;
      return compute_.resume(number, clock, end);
    }
    const std::uint32_t slot = join_exchange(number);
    Exchange& exchange = state_.exchanges[slot];
    if (exchange.arrived == 0) {
      exchange.subject = stream.op->subject;
      exchange.active = stream.begin;
      exchange.state = ExchangeState::in_flight;
      queue_.push({end, slot, 0, Phase::finish, kEndExchange});
    }
    ++exchange.arrived;
    stream.next = exchange.first;
    exchange.first = number;
    actor.taken += state_.transfer(exchange).units_taken;
  }

  // Communication.

  std::uint32_t join_exchange(std::uint32_t number) {
    StreamState& stream = state_.streams[number];
    const CompiledOp& op = state_.op(stream);
    ActorState& owner = state_.actors[stream.actor];
    const std::uint32_t sequence = owner.compiled->sequence(stream.head.call, op);
    const std::uint32_t edge = state_.edge_of(owner, stream, op);
    stream.slot = state_.find_or_add(edge, sequence);
    return stream.slot;
  }

  void begin_collective(std::uint32_t number) {
    const std::uint32_t slot = join_exchange(number);
    Exchange& exchange = state_.exchanges[slot];
    const std::uint32_t subject = state_.op(state_.streams[number]).subject;
    if (exchange.arrived == 0) exchange.subject = subject;
    exchange.mismatch |= exchange.subject != subject;
    state_.streams[number].next = exchange.first;
    exchange.first = number;
    ++exchange.arrived;
    if (exchange.arrived == state_.communicator(exchange.edge).members.size() && !exchange.mismatch)
      start_transfer(slot);
  }

  void begin_send(std::uint32_t number) {
    const std::uint32_t slot = join_exchange(number);
    Exchange& exchange = state_.exchanges[slot];
    exchange.subject = state_.op(state_.streams[number]).subject;
    exchange.first = number;
    exchange.mismatch = exchange.receiver != kNone && exchange.expected != exchange.subject;
    start_transfer(slot);
  }

  void begin_receive(std::uint32_t number) {
    const std::uint32_t slot = join_exchange(number);
    Exchange& exchange = state_.exchanges[slot];
    exchange.receiver = number;
    exchange.expected = state_.op(state_.streams[number]).subject;
    exchange.mismatch = exchange.first != kNone && exchange.expected != exchange.subject;
    if (exchange.state == ExchangeState::delivered && !exchange.mismatch)
      queue_.push_now(Phase::finish, kEndReceive, number);
  }

  void start_transfer(std::uint32_t slot) {
    Exchange& exchange = state_.exchanges[slot];
    const Transfer& transfer = state_.transfer(exchange);
    exchange.active = queue_.now();
    beside_.begin(exchange);
    exchange.state = ExchangeState::in_flight;
    const std::uint32_t edge = exchange.edge;
    hold_units(edge, transfer.units_taken);
    if (transfer.bytes > Bytes{} && state_.has_paths(edge)) {
      const Duration arrives = later(queue_.now(), transfer.latency);
      if (transfer.latency == Duration::zero())
        join_network(slot);
      else
        queue_.push({arrives, slot, 0, Phase::start, kJoinNetwork});
      return;
    }
    queue_.push(
        {later(queue_.now(), transfer_time(transfer)), slot, 0, Phase::finish, kEndExchange});
  }

  void join_network(std::uint32_t slot) {
    Exchange& exchange = state_.exchanges[slot];
    const Transfer& transfer = state_.transfer(exchange);
    const auto join = [&](const Path& path, std::uint32_t load = kFullLoad) {
      network_.add(slot, path, of_load(transfer.bytes, load), transfer.rate);
      ++exchange.flows_left;
    };
    if (state_.is_channel(exchange.edge)) {
      join(state_.channel(exchange.edge).path);
    } else {
      const Communicator& group = state_.communicator(exchange.edge);
      for (std::size_t p = 0; p < group.paths.size(); ++p)
        if (group.layouts.empty() || group.layouts[p] == transfer.layout)
          join(group.paths[p], group.loads.empty() ? kFullLoad : group.loads[p]);
    }
    reshare_due_ = true;
  }

  void end_exchange(std::uint32_t slot) {
    if (const Duration left = beside_.left_over(state_.exchanges[slot]); left > Duration::zero()) {
      queue_.push({later(queue_.now(), left), slot, 0, Phase::finish, kEndExchange});
      return;
    }
    hold_units(state_.exchanges[slot].edge, -state_.transfer(state_.exchanges[slot]).units_taken);
    // What ends may stop solos, whose exchanges may take its slot.
    const Exchange exchange = state_.exchanges[slot];
    if (!state_.is_channel(exchange.edge)) {
      state_.remove(slot);
      for (std::uint32_t s = exchange.first; s != kNone;) {
        const std::uint32_t next = state_.streams[s].next;
        end(s, exchange.active);
        s = next;
      }
      return;
    }
    end(exchange.first, exchange.active);
    const auto channel =
        static_cast<std::uint32_t>(exchange.edge - state_.machine.communicators.size());
    if (state_.is_counted(channel)) {
      TRAINYARD_CHECK(exchange.receiver == kNone, "channel {} is heard and received", channel);
      state_.remove(slot);
      for (const std::uint32_t stream : state_.arrive(channel))
        end(stream, queue_.now());
      return;
    }
    if (exchange.receiver == kNone || exchange.mismatch) {
      state_.exchanges[slot].state = ExchangeState::delivered;
      return;
    }
    state_.remove(slot);
    end(exchange.receiver, std::max(exchange.active, state_.streams[exchange.receiver].begin));
  }

  // Of all members of an edge. May add exchanges.
  void hold_units(std::uint32_t edge, int units) {
    if (units == 0) return;
    if (state_.is_channel(edge)) {
      hold_units(state_.channel(edge).source, units);
      hold_units(state_.channel(edge).destination, units);
      return;
    }
    for (ActorId member : state_.communicator(edge).members)
      hold_units(member, units);
  }

  void hold_units(ActorId actor, int units) {
    ActorState& owner = state_.actors[index(actor)];
    stop_solo(owner);
    owner.taken += units;
    mind_rate(owner);
  }
  void mind_rate(ActorState& actor) {
    if (actor.rate_changed || actor.computing_on == 0) return;
    actor.rate_changed = true;
    rate_changed_.push_back(static_cast<std::uint32_t>(&actor - state_.actors.data()));
    reshare_due_ = true;
  }

  // Once per instant, when all has ended and begun: new rates for flows and kernels.
  void reshare() {
    reshare_due_ = false;
    for (std::uint32_t actor : rate_changed_) {
      state_.actors[actor].rate_changed = false;
      compute_.change_rate(actor);
    }
    rate_changed_.clear();
    if (network_.changed()) network_.reshare(queue_.now());
  }

  // The end.

  Outcome conclude() {
    const bool unfinished =
        std::any_of(state_.streams.begin(), state_.streams.end(),
                    [](const StreamState& stream) { return stream.state != HeadState::done; });
    if (unfinished) return give_up();
    memory_.settle(last_);
    const std::optional<ActorId> over = memory_.furthest_over();
    if (!over) return take_trace();
    OutOfMemory result;
    result.actor = *over;
    result.capacity = state_.machine.actors[*over].memory_capacity;
    const MemoryPeak peak = memory_.peak(*over);
    result.needed = peak.pooled;
    result.owners = owners_of_peak(*state_.machine.actors[*over].program, *over, peak);
    result.trace = take_trace();
    return result;
  }

  Deadlock give_up() {
    for (ActorState& actor : state_.actors)
      stop_solo(actor);
    memory_.settle(last_);
    Deadlock deadlock = explain_deadlock(state_, last_);
    deadlock.trace = take_trace();
    return deadlock;
  }

  Trace take_trace() {
    Trace trace = recorder_.take(happened_);
    trace.skipped = periods_.events_skipped();
    for (ActorId actor : state_.machine.actors.ids())
      trace.peaks.push_back(memory_.peak(actor));
    return trace;
  }

  RunState state_;
  EventQueue queue_;
  Recorder recorder_;
  BesideKernels beside_;
  FlowNetwork network_;
  MemoryAccounts memory_;
  ComputeRunner compute_;
  SoloRunner solos_;
  PeriodSkipper periods_;
  std::vector<std::uint32_t> rate_changed_;  // actors
  bool reshare_due_ = false;
  Duration last_{};  // when an op last began or ended; later events may be stale
  std::uint64_t budget_;
  std::uint64_t events_ = 0;    // popped from the queue
  std::uint64_t happened_ = 0;  // Trace::events
  Duration instant_{};
  std::uint64_t most_events_;  // before this instant and at it
};

}  // namespace

Outcome run(const Machine& machine, const RunOptions& options) {
  return Engine(machine, options).run();
}

}  // namespace trainyard::engine
