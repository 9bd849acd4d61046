// The mutable state of one run: a record per actor, per stream and per transfer in flight; nothing
// per op.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "sim/engine/compiled_program.h"
#include "sim/engine/compute/kernel_clock.h"
#include "sim/engine/engine.h"

namespace trainyard::engine {

inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// What an event is about; by phase as the queue orders them.
enum EventKind : std::uint8_t {
  kEndCompute,   // finish: stream, version
  kEndReceive,   // finish: stream, whose message had arrived before
  kEndHear,      // finish: stream, whose messages had arrived before
  kEndExchange,  // finish: exchange
  kEndSolo,      // finish: stream that stands for it, version
  kBegin,        // start: stream
  kJoinNetwork,  // start: exchange, its latency is over
};

enum class HeadState : std::uint8_t {
  blocked,  // waits for ops of other streams
  due,      // begins at a time that is known (its start is in the queue)
  running,
  done,  // the stream has no more ops
};

// One cache line each: of the streams of 131,072 actors a cache holds few.
struct alignas(64) StreamState {
  std::uint32_t actor = 0;
  Position head;
  std::uint32_t ended = 0;     // ops of this stream
  std::uint32_t version = 0;   // of the end of its compute op, or of the solo it stands for
  std::uint32_t slot = kNone;  // running: its exchange, or its clock if it was slowed down
  std::uint32_t next = kNone;  // the next member of the same exchange
  Duration begin{};
  const CompiledOp* op = nullptr;  // the head; null: the stream has no more ops
  // Bit s: the head of stream s of the actor, which is blocked, waits for ops of this one, before
  // it asks for others.
  std::uint32_t waiters = 0;
  std::uint32_t wakes_at = kNone;  // the number of ended ops that the first of them waits for
  HeadState state = HeadState::blocked;
  bool is_late = false;          // a compute op: slowed down since the event of its end was made
  std::uint32_t end_beside = 0;  // units taken then
};

// What every op asks for comes first, in one cache line.
struct alignas(64) ActorState {
  const CompiledProgram* compiled = nullptr;  // the program
  const HostTimes* host = nullptr;            // into RunState::host_times
  const WorkTime* work = nullptr;             // into RunState::work_times
  std::int64_t taken = 0;                     // units that transfers in flight hold
  Duration finished{};
  std::uint32_t first_stream = 0, streams = 0;
  std::uint32_t first_edge = 0;    // into RunState::edge_numbers
  std::uint32_t computing_on = 0;  // bit s: a compute op of stream s runs
  std::uint32_t solo = kNone;      // the stream that stands for the solo it is in
  bool solo_begun = false;         // its first op has begun already
  bool rate_changed = false;       // it is in the list of those to reconsider
  std::uint32_t program = 0;       // into RunState::programs
  std::uint32_t times = 0;         // into RunState::work_times
  std::uint32_t launches = 0;      // into RunState::host_times
  int computing = 0;               // compute ops that run, with Machine::share_beside_kernels
  Duration busy{}, busy_since{};   // how long some did before, and since when some do
};

enum class ExchangeState : std::uint8_t { gathering, in_flight, delivered };

// The k-th collective of a communicator, or the k-th send of a channel with its receive.
struct Exchange {
  std::uint32_t edge = 0;  // communicator, or number of communicators + channel
  std::uint32_t sequence = 0;
  std::uint32_t next = kNone;      // of the same edge, by sequence
  std::uint32_t subject = 0;       // of the collective's first member, or of the send
  std::uint32_t expected = 0;      // of the receive
  std::uint32_t arrived = 0;       // members of a collective
  std::uint32_t first = kNone;     // their streams, linked; or the sender's stream
  std::uint32_t receiver = kNone;  // its stream
  std::uint32_t flows_left = 0;
  Duration active{};
  Duration busy{};  // of its first member or sender, when its progress was last reckoned
  ExchangeState state = ExchangeState::gathering;
  bool mismatch = false;
};

struct RunState {
  explicit RunState(const Machine& machine);
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  const Machine& machine;
  std::vector<CompiledProgram> programs;
  std::vector<std::uint32_t> code_of;             // by program: the first with the same code
  std::vector<std::vector<WorkTime>> work_times;  // by (code, times, launch)
  std::vector<HostTimes> host_times;              // by (program, launch)
  std::map<std::pair<std::uint32_t, std::int64_t>, std::vector<HostTimes::OfOp>>
      host_times_of_code;  // by (code, launch)
  std::vector<ActorState> actors;
  std::vector<StreamState> streams;
  std::vector<std::uint32_t> needs;         // by stream, if blocked: ended ops of one it waits for
  std::vector<std::uint32_t> edge_numbers;  // by actor and column of its program; kNone: not asked
  std::vector<Exchange> exchanges;
  std::vector<std::uint32_t> free_exchanges;
  struct Edge {
    std::uint32_t first = kNone, last = kNone;
    std::uint32_t removed = 0;  // exchanges so far
  };
  std::vector<Edge> edges;
  std::vector<std::uint32_t> inbox_of;                // by channel; empty: there are no inboxes
  std::vector<std::uint32_t> arrived;                 // the same: how many messages
  std::vector<std::vector<std::uint32_t>> listening;  // by inbox: streams that hear

  const Actor& actor(const StreamState& stream) const {
    return machine.actors[ActorId{stream.actor}];
  }
  const CompiledProgram& program(const StreamState& stream) const {
    return *actors[stream.actor].compiled;
  }
  // Requires: the stream is not done.
  const CompiledOp& op(const StreamState& stream) const { return *stream.op; }
  // Goes to the next op of the stream.
  void go_on(StreamState& stream, const ActorState& owner) const {
    const std::uint8_t number = stream.op->stream;
    ++stream.op;
    if (++stream.head.at == stream.head.last)
      seek(stream, *owner.compiled, number, stream.head.call + 1);
  }
  bool is_channel(std::uint32_t edge) const { return edge >= machine.communicators.size(); }
  const Communicator& communicator(std::uint32_t edge) const {
    return machine.communicators[CommunicatorId{edge}];
  }
  const Channel& channel(std::uint32_t edge) const {
    return machine.channels[static_cast<ChannelId>(edge - machine.communicators.size())];
  }
  bool has_paths(std::uint32_t edge) const {
    return is_channel(edge) ? !channel(edge).path.empty() : !communicator(edge).paths.empty();
  }
  // When the host begins with the launches of a stream's head, has done the first and all of them.
  HostTimes::OfOp host_times_of(const ActorState& owner, const StreamState& stream) const {
    const Duration call = owner.host->call[stream.head.call];
    const HostTimes::OfOp& op = owner.host->op[stream.head.at];
    return {call + op.from, call + op.issued, call + op.done};
  }
  // Goes to the first op of the stream in `call` or a later one.
  static void seek(StreamState& stream, const CompiledProgram& compiled, std::uint32_t number,
                   std::uint32_t call) {
    stream.head = compiled.seek(number, call);
    const bool done = stream.head.call == compiled.program->calls.size();
    stream.op = done ? nullptr : &compiled.ops[stream.head.at];
  }
  // The edge that a communication op of this actor names.
  std::uint32_t edge_of(ActorState& owner, const StreamState& stream, const CompiledOp& op) {
    std::uint32_t& known = edge_numbers[owner.first_edge + op.column];
    if (known == kNone) known = edge_of(actor(stream), op);
    return known;
  }
  std::uint32_t edge_of(const Actor& actor, const CompiledOp& op) const;
  const Transfer& transfer(const Exchange& exchange) const;

  // Whether every op that the head of the stream waits for has ended; if not, a stream that has to
  // go on for that wakes it.
  bool waits_met(std::uint32_t number, const ActorState& owner, const StreamState& stream) {
    const CompiledProgram& compiled = *owner.compiled;
    const CompiledOp& head = *stream.op;
    const std::uint32_t* threshold = compiled.thresholds.data() + head.first_threshold;
    const std::uint32_t* base =
        compiled.ended_base.data() + std::size_t{stream.head.call} * compiled.streams;
    for (std::uint32_t waits = head.waits; waits != 0; waits &= waits - 1, ++threshold) {
      const auto s = static_cast<std::uint32_t>(std::countr_zero(waits));
      StreamState& other = streams[owner.first_stream + s];
      const std::uint32_t needed = base[s] + *threshold;
      if (other.ended >= needed) continue;
      needs[number] = needed;
      other.waiters |= 1U << (number - owner.first_stream);
      other.wakes_at = std::min(other.wakes_at, needed);
      return false;
    }
    return true;
  }
  KernelSequence kernels(const StreamState& stream) const;

  // The inbox that the head names, which hears.
  std::uint32_t inbox_heard(const StreamState& stream) const;
  // What the head, which hears, waits for: messages of a round, of which some have arrived.
  struct Heard {
    std::uint32_t round = 0, needed = 0, arrived = 0;
  };
  Heard heard(const StreamState& stream) const;
  // The head, which hears, begins: whether it ends at once.
  bool hear(std::uint32_t number);
  bool is_counted(std::uint32_t channel) const {
    return !inbox_of.empty() && inbox_of[channel] != kNone;
  }
  // A message has come in; the streams whose ops end with it, in the order in which they began.
  // Requires: is_counted(channel).
  std::vector<std::uint32_t> arrive(std::uint32_t channel);

  void add_program(const Program& program);

  // The exchange of this sequence number on the edge; made if there is none.
  std::uint32_t find_or_add(std::uint32_t edge, std::uint32_t sequence);
  void remove(std::uint32_t exchange);
};

// then(number, stream) for each of these streams of the actor.
template <class Do>
void for_each_stream(RunState& state, const ActorState& actor, std::uint32_t streams,
                     const Do& then) {
  for (; streams != 0; streams &= streams - 1) {
    const std::uint32_t number =
        actor.first_stream + static_cast<std::uint32_t>(std::countr_zero(streams));
    then(number, state.streams[number]);
  }
}

}  // namespace trainyard::engine
