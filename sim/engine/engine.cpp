#include "sim/engine/engine.h"

#include <algorithm>
#include <map>

#include "sim/base/check.h"
#include "sim/engine/deadlock.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/flow_network.h"
#include "sim/engine/memory_ledger.h"
#include "sim/engine/recorder.h"
#include "sim/engine/run_state.h"

namespace trainyard {
namespace {

// What an event is about; by phase as the queue orders them.
enum EventKind : std::uint8_t {
  kEndCompute,   // finish: stream, version
  kEndReceive,   // finish: stream, whose message had arrived before
  kEndExchange,  // finish: exchange
  kEndFlow,      // finish: flow, version
  kBegin,        // start: stream
  kJoinNetwork,  // start: exchange, its latency is over
  kReshare,      // reshare
};

class Engine {
 public:
  Engine(const Machine& machine, const RunOptions& options)
      : options_(options),
        state_(machine),
        recorder_(state_, options),
        network_(machine.link_capacity, options.sharing != nullptr ? *options.sharing : max_min_),
        ledgers_(machine.actors.size()),
        peak_ended_(state_.streams.size()),
        peak_running_(state_.streams.size()),
        // A thousand actors in step do a thousand things at once without going round in circles.
        budget_(options.max_events_per_instant * (1 + machine.actors.size() / 1024)) {
    for (ActorId actor : machine.actors.ids())
      for (const MemoryEffect& effect : machine.actors[actor].program->resident)
        ledgers_[index(actor)].add_resident(effect);
  }

  Outcome run() {
    for (std::uint32_t s = 0; s < state_.streams.size(); ++s)
      look_at_head(s);
    std::uint64_t at_this_instant = 0;
    Duration instant{};
    while (!queue_.empty()) {
      const Event event = queue_.pop();
      ++events_;
      if (event.at != instant) {
        instant = event.at;
        at_this_instant = 0;
      }
      if (++at_this_instant > budget_) return give_up();
      handle(event);
    }
    return conclude();
  }

 private:
  void handle(const Event& event) {
    switch (static_cast<EventKind>(event.kind)) {
      case kEndCompute: end_compute(event.subject, event.version); break;
      case kEndReceive: end_receive(event.subject); break;
      case kEndExchange: end_exchange(event.subject); break;
      case kEndFlow: end_flow(event.subject, event.version); break;
      case kBegin: begin(event.subject); break;
      case kJoinNetwork: join_network(event.subject); break;
      case kReshare: reshare(); break;
    }
  }

  // Streams.

  // Finds out when the head of a stream can begin, if that is known yet.
  void look_at_head(std::uint32_t number) {
    StreamState& stream = state_.streams[number];
    ActorState& owner = state_.actors[stream.actor];
    const auto bit = static_cast<std::uint8_t>(1U << (number - owner.first_stream));
    if (stream.head.call == state_.programs[owner.program].program->calls.size()) {
      stream.state = HeadState::done;
      return;
    }
    if (!state_.waits_met(stream)) {
      stream.state = HeadState::blocked;
      owner.blocked = static_cast<std::uint8_t>(owner.blocked | bit);
      return;
    }
    owner.blocked = static_cast<std::uint8_t>(owner.blocked & ~bit);
    stream.state = HeadState::due;
    const Duration at = std::max(queue_.now(), issued(state_, stream));
    queue_.push({at, number, 0, Phase::start, kBegin});
  }

  void begin(std::uint32_t number) {
    StreamState& stream = state_.streams[number];
    const CompiledOp& op = state_.op(stream);
    if (op.takes) change_memory(stream, op, +1);  // before it counts as running, see remember_peak
    stream.state = HeadState::running;
    stream.begin = last_ = queue_.now();
    switch (op.kind) {
      case OpKind::compute: begin_compute(number); break;
      case OpKind::collective: begin_collective(number); break;
      case OpKind::send: begin_send(number); break;
      case OpKind::receive: begin_receive(number); break;
    }
  }

  void end(std::uint32_t number, Duration active) {
    StreamState& stream = state_.streams[number];
    ActorState& owner = state_.actors[stream.actor];
    const CompiledOp& op = state_.op(stream);
    if (op.releases) change_memory(stream, op, -1);
    recorder_.op(stream, active, queue_.now());
    owner.finished = last_ = queue_.now();
    ++stream.ended;
    stream.slot = kNone;
    if (++stream.head.at == stream.head.last)
      stream.head = state_.programs[owner.program].seek(op.stream, stream.head.call + 1);
    const std::uint8_t bit = static_cast<std::uint8_t>(1U << op.stream);
    look_at_head(number);
    for (unsigned blocked = owner.blocked & ~unsigned{bit}; blocked != 0; blocked &= blocked - 1) {
      const std::uint32_t other =
          owner.first_stream + static_cast<std::uint32_t>(std::countr_zero(blocked));
      if ((state_.op(state_.streams[other]).waits & bit) != 0) look_at_head(other);
    }
  }

  // Memory.

  void change_memory(const StreamState& stream, const CompiledOp& op, int sign) {
    MemoryLedger& ledger = ledgers_[stream.actor];
    if (ledger.settle(queue_.now())) remember_peak(stream.actor);
    const Program& program = *state_.program(stream).program;
    for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e) {
      const MemoryEffect& effect = program.effects[e];
      if (effect.bytes * sign <= 0) continue;
      TRAINYARD_CHECK(effect.category < kMaxCategories, "memory category {}", effect.category);
      ledger.add(effect.category, effect.bytes);
      recorder_.memory(stream, effect, queue_.now());
    }
  }

  // Where the streams stood, from which the owners of the peak follow; only if it does not fit.
  void remember_peak(std::uint32_t actor) {
    const Bytes capacity = state_.machine.actors[ActorId{actor}].memory_capacity;
    if (capacity == Bytes{} || ledgers_[actor].result().peak <= capacity) return;
    const ActorState& owner = state_.actors[actor];
    for (std::uint32_t s = owner.first_stream; s < owner.first_stream + owner.streams; ++s) {
      peak_ended_[s] = state_.streams[s].ended;
      peak_running_[s] = state_.streams[s].state == HeadState::running;
    }
  }

  // Compute.

  std::int64_t rate(std::uint32_t actor) const {
    const std::int64_t units = state_.machine.actors[ActorId{actor}].units;
    return std::max<std::int64_t>(1, units - state_.actors[actor].taken);
  }

  void begin_compute(std::uint32_t number) {
    StreamState& stream = state_.streams[number];
    const ActorState& owner = state_.actors[stream.actor];
    Duration end;
    if (owner.taken == 0) {
      const CompiledOp& op = state_.op(stream);
      const WorkTime& time = state_.work_times[owner.times][op.subject];
      const std::int64_t before = state_.program(stream).launches_before(stream.head.call, op);
      end = std::max(stream.begin + time.total,
                     before * state_.actor(stream).launch + time.host);
    } else {
      stream.slot = new_clock();
      const KernelSequence kernels = state_.kernels(stream);
      clocks_[stream.slot] = KernelClock(kernels, stream.begin, rate(stream.actor));
      end = KernelClock(clocks_[stream.slot]).finish(kernels, kIgnore);
    }
    queue_.push({end, number, ++stream.version, Phase::finish, kEndCompute});
  }

  // The rate of the actor's running ops became another one at this instant.
  void change_rate(std::uint32_t actor) {
    const ActorState& owner = state_.actors[actor];
    const std::int64_t now_rate = rate(actor);
    for (std::uint32_t s = owner.first_stream; s < owner.first_stream + owner.streams; ++s) {
      StreamState& stream = state_.streams[s];
      if (stream.state != HeadState::running || state_.op(stream).kind != OpKind::compute) continue;
      const KernelSequence kernels = state_.kernels(stream);
      if (stream.slot == kNone) {
        stream.slot = new_clock();
        clocks_[stream.slot] = KernelClock(kernels, stream.begin, kernels.units);
      }
      KernelClock& clock = clocks_[stream.slot];
      if (clock.rate() == now_rate) continue;
      advance(clock, stream, kernels, queue_.now());
      clock.set_rate(now_rate);
      const Duration end = KernelClock(clock).finish(kernels, kIgnore);
      queue_.push({end, s, ++stream.version, Phase::finish, kEndCompute});
    }
  }

  void advance(KernelClock& clock, const StreamState& stream, const KernelSequence& kernels,
               Duration until) {
    if (!recorder_.wants_kernels(stream.actor)) {
      clock.advance(kernels, until, kIgnore);
      return;
    }
    clock.advance(kernels, until, [&](std::uint32_t kernel, Duration begin, Duration end) {
      recorder_.kernel(stream, kernel, begin, end);
    });
  }

  void end_compute(std::uint32_t number, std::uint32_t version) {
    StreamState& stream = state_.streams[number];
    if (stream.version != version) return;
    if (recorder_.wants_kernels(stream.actor)) {
      const KernelSequence kernels = state_.kernels(stream);
      KernelClock clock = stream.slot == kNone ? KernelClock(kernels, stream.begin, kernels.units)
                                               : clocks_[stream.slot];
      clock.finish(kernels, [&](std::uint32_t kernel, Duration begin, Duration end) {
        recorder_.kernel(stream, kernel, begin, end);
      });
    }
    if (stream.slot != kNone) free_clocks_.push_back(stream.slot);
    end(number, stream.begin);
  }

  std::uint32_t new_clock() {
    if (free_clocks_.empty()) {
      clocks_.emplace_back();
      return static_cast<std::uint32_t>(clocks_.size() - 1);
    }
    const std::uint32_t clock = free_clocks_.back();
    free_clocks_.pop_back();
    return clock;
  }

  // Communication.

  std::uint32_t join_exchange(std::uint32_t number) {
    StreamState& stream = state_.streams[number];
    const CompiledOp& op = state_.op(stream);
    const std::uint32_t sequence = state_.program(stream).sequence(stream.head.call, op);
    stream.slot = state_.find_or_add(state_.edge_of(state_.actor(stream), op), sequence);
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
      queue_.push({queue_.now(), number, 0, Phase::finish, kEndReceive});
  }

  void start_transfer(std::uint32_t slot) {
    Exchange& exchange = state_.exchanges[slot];
    const Transfer& transfer = state_.transfer(exchange);
    exchange.active = queue_.now();
    exchange.state = ExchangeState::in_flight;
    hold_units(exchange, transfer.units_taken);
    const Duration arrives = queue_.now() + transfer.latency;
    if (transfer.bytes > Bytes{} && has_paths(exchange)) {
      if (transfer.latency == Duration::zero())
        join_network(slot);
      else
        queue_.push({arrives, slot, 0, Phase::start, kJoinNetwork});
      return;
    }
    Duration wire{};
    if (transfer.bytes > Bytes{}) {
      TRAINYARD_CHECK(transfer.rate >= 1, "a transfer of {} bytes with rate {}",
                      transfer.bytes.count(), transfer.rate);
      wire = Duration(
          divide_up(Int128{transfer.bytes.count()} * kPicosecondsPerSecond, transfer.rate));
    }
    queue_.push({arrives + wire, slot, 0, Phase::finish, kEndExchange});
  }

  bool has_paths(const Exchange& exchange) const {
    return state_.is_channel(exchange.edge) ? !state_.channel(exchange.edge).path.empty()
                                            : !state_.communicator(exchange.edge).paths.empty();
  }

  void join_network(std::uint32_t slot) {
    Exchange& exchange = state_.exchanges[slot];
    const Transfer& transfer = state_.transfer(exchange);
    const auto join = [&](const Path& path) {
      network_.add(slot, path, transfer.bytes, transfer.rate, queue_.now());
      ++exchange.flows_left;
    };
    if (state_.is_channel(exchange.edge)) {
      join(state_.channel(exchange.edge).path);
    } else {
      for (const Path& path : state_.communicator(exchange.edge).paths)
        join(path);
    }
    request_reshare();
  }

  void end_flow(std::uint32_t flow, std::uint32_t version) {
    std::uint32_t slot = kNone;
    if (!network_.finish(flow, version, slot)) return;
    request_reshare();
    if (--state_.exchanges[slot].flows_left == 0) end_exchange(slot);
  }

  void end_exchange(std::uint32_t slot) {
    Exchange& exchange = state_.exchanges[slot];
    hold_units(exchange, -state_.transfer(exchange).units_taken);
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
    if (exchange.receiver == kNone || exchange.mismatch) {
      exchange.state = ExchangeState::delivered;
      return;
    }
    state_.remove(slot);
    end(exchange.receiver, std::max(exchange.active, state_.streams[exchange.receiver].begin));
  }

  void end_receive(std::uint32_t number) {
    const std::uint32_t slot = state_.streams[number].slot;
    state_.remove(slot);
    end(number, state_.streams[number].begin);
  }

  void hold_units(const Exchange& exchange, int units) {
    if (units == 0) return;
    if (state_.is_channel(exchange.edge)) {
      hold_units(state_.channel(exchange.edge).source, units);
      hold_units(state_.channel(exchange.edge).destination, units);
      return;
    }
    for (ActorId member : state_.communicator(exchange.edge).members)
      hold_units(member, units);
  }

  void hold_units(ActorId actor, int units) {
    ActorState& owner = state_.actors[index(actor)];
    owner.taken += units;
    if (owner.rate_changed) return;
    owner.rate_changed = true;
    rate_changed_.push_back(static_cast<std::uint32_t>(actor));
    request_reshare();
  }

  // Once per instant, when all has ended and begun: new rates for flows and kernels.

  void request_reshare() {
    if (reshare_due_) return;
    reshare_due_ = true;
    queue_.push({queue_.now(), 0, 0, Phase::reshare, kReshare});
  }

  void reshare() {
    reshare_due_ = false;
    for (std::uint32_t actor : rate_changed_) {
      state_.actors[actor].rate_changed = false;
      change_rate(actor);
    }
    rate_changed_.clear();
    if (network_.changed()) network_.reshare(queue_, kEndFlow);
  }

  // The end.

  Outcome conclude() {
    const bool unfinished =
        std::any_of(state_.streams.begin(), state_.streams.end(),
                    [](const StreamState& stream) { return stream.state != HeadState::done; });
    if (unfinished) return give_up();
    settle_memory();
    std::uint32_t worst = kNone;
    std::int64_t most_over = 0;
    for (ActorId actor : state_.machine.actors.ids()) {
      const Bytes capacity = state_.machine.actors[actor].memory_capacity;
      const std::int64_t over = (ledgers_[index(actor)].result().peak - capacity).count();
      if (capacity == Bytes{} || over <= most_over) continue;
      most_over = over;
      worst = static_cast<std::uint32_t>(actor);
    }
    if (worst == kNone) return recorder_.take(ledgers_, events_);
    OutOfMemory result;
    result.actor = ActorId{worst};
    result.needed = ledgers_[worst].result().peak;
    result.capacity = state_.machine.actors[result.actor].memory_capacity;
    result.owners = owners_of_peak(worst);
    result.trace = recorder_.take(ledgers_, events_);
    return result;
  }

  void settle_memory() {
    const Duration after = queue_.now() + Duration(1);
    for (std::uint32_t actor = 0; actor < ledgers_.size(); ++actor)
      if (ledgers_[actor].settle(after)) remember_peak(actor);
  }

  Deadlock give_up() {
    settle_memory();
    Deadlock deadlock = explain_deadlock(state_, last_);
    deadlock.trace = recorder_.take(ledgers_, events_);
    return deadlock;
  }

  // Replays the effects of all that had begun and ended at the peak.
  std::vector<MemoryChange> owners_of_peak(std::uint32_t actor) const {
    const ActorState& owner = state_.actors[actor];
    const CompiledProgram& compiled = state_.programs[owner.program];
    const Program& program = *compiled.program;
    std::map<std::pair<std::uint8_t, std::uint32_t>, std::int64_t> live;
    for (const MemoryEffect& effect : program.resident)
      live[{effect.category, effect.owner}] += effect.bytes;
    for (std::uint32_t s = 0; s < owner.streams; ++s) {
      const std::uint32_t ended = peak_ended_[owner.first_stream + s];
      const std::uint32_t begun = ended + (peak_running_[owner.first_stream + s] ? 1 : 0);
      Position position = compiled.seek(s, 0);
      for (std::uint32_t i = 0; i < begun; ++i) {
        const CompiledOp& op = compiled.ops[position.at];
        for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e)
          if (program.effects[e].bytes > 0 || i < ended)
            live[{program.effects[e].category, program.effects[e].owner}] += program.effects[e].bytes;
        if (++position.at == position.last) position = compiled.seek(s, position.call + 1);
      }
    }
    std::vector<MemoryChange> owners;
    const Duration at = ledgers_[actor].result().at;
    for (const auto& [key, bytes] : live)
      if (bytes != 0)
        owners.push_back({.at = at, .actor = ActorId{actor}, .category = key.first,
                          .owner = key.second, .bytes = bytes});
    std::stable_sort(owners.begin(), owners.end(), [](const MemoryChange& a, const MemoryChange& b) {
      return a.bytes > b.bytes;
    });
    return owners;
  }

  static constexpr auto kIgnore = [](std::uint32_t, Duration, Duration) {};

  const RunOptions& options_;
  RunState state_;
  EventQueue queue_;
  MaxMinSharing max_min_;
  Recorder recorder_;
  FlowNetwork network_;
  std::vector<MemoryLedger> ledgers_;          // by actor
  std::vector<std::uint32_t> peak_ended_;      // by stream
  std::vector<bool> peak_running_;             // by stream
  std::vector<KernelClock> clocks_;
  std::vector<std::uint32_t> free_clocks_;
  std::vector<std::uint32_t> rate_changed_;    // actors
  bool reshare_due_ = false;
  Duration last_{};  // when an op last began or ended; later events may be stale
  std::uint64_t budget_;
  std::uint64_t events_ = 0;
};

}  // namespace

Outcome run(const Machine& machine, const RunOptions& options) {
  return Engine(machine, options).run();
}

}  // namespace trainyard
