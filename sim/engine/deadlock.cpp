#include "sim/engine/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace trainyard::engine {
namespace {

class Explainer {
 public:
  explicit Explainer(const RunState& state) : state_(state), waits_for_(state.streams.size()) {}

  Deadlock explain(Duration now) {
    Deadlock deadlock;
    deadlock.at = now;
    for (std::uint32_t s = 0; s < state_.streams.size(); ++s) {
      const StreamState& stream = state_.streams[s];
      if (stream.state == HeadState::done) continue;
      deadlock.waiting.push_back({.actor = ActorId{stream.actor},
                                  .call = stream.head.call,
                                  .op = state_.op(stream).index,
                                  .why = why(s)});
    }
    deadlock.cycle = find_cycle();
    return deadlock;
  }

 private:
  std::string why(std::uint32_t number) {
    const StreamState& stream = state_.streams[number];
    const CompiledOp& op = state_.op(stream);
    switch (stream.state) {
      case HeadState::blocked: return blocked(number);
      case HeadState::due: return fmt::format("was about to begin {}", name(stream));
      case HeadState::done: return "";
      case HeadState::running: break;
    }
    if (op.kind == OpKind::compute) return fmt::format("is running {}", name(stream));
    if (op.kind == OpKind::hear) return missing_messages(number);
    const Exchange& exchange = state_.exchanges[stream.slot];
    if (op.kind == OpKind::collective && exchange.state == ExchangeState::gathering)
      return exchange.mismatch ? collective_mismatch(number) : missing_members(number);
    if (op.kind == OpKind::receive && exchange.mismatch) return message_mismatch(number);
    if (op.kind == OpKind::receive && exchange.first == kNone) return missing_send(number);
    return fmt::format("has {} in flight", name(stream));
  }

  std::string name(const StreamState& stream) const {
    const Program& program = *state_.program(stream).program;
    const CompiledOp& op = state_.op(stream);
    const Block& block = program.blocks[program.calls[stream.head.call].block];
    const std::uint32_t label = block.ops[op.index].label;
    return label < program.labels.size() ? fmt::format("'{}'", program.labels[label])
                                         : fmt::format("op {}", op.index);
  }

  std::string blocked(std::uint32_t number) {
    const StreamState& stream = state_.streams[number];
    const ActorState& owner = state_.actors[stream.actor];
    const CompiledProgram& program = state_.program(stream);
    const CompiledOp& op = state_.op(stream);
    const std::uint32_t* threshold = program.thresholds.data() + op.first_threshold;
    std::string text;
    for (unsigned waits = op.waits; waits != 0; waits &= waits - 1, ++threshold) {
      const auto s = static_cast<std::uint32_t>(std::countr_zero(waits));
      const std::uint32_t needed =
          program.ended_base[std::size_t{stream.head.call} * program.streams + s] + *threshold;
      const StreamState& other = state_.streams[owner.first_stream + s];
      if (other.ended >= needed) continue;
      waits_for_[number].push_back(owner.first_stream + s);
      text += fmt::format("{} {} more on stream '{}' (next: {})",
                          text.empty() ? fmt::format("{} waits for", name(stream)) : ",",
                          needed - other.ended, program.program->streams[s], name(other));
    }
    return text;
  }

  // The streams of all members that have reached the collective.
  std::vector<std::uint32_t> arrived(const Exchange& exchange) const {
    std::vector<std::uint32_t> streams;
    for (std::uint32_t s = exchange.first; s != kNone; s = state_.streams[s].next)
      streams.push_back(s);
    return streams;
  }

  std::string missing_members(std::uint32_t number) {
    const StreamState& stream = state_.streams[number];
    const Exchange& exchange = state_.exchanges[stream.slot];
    const std::vector<ActorId>& members = state_.communicator(exchange.edge).members;
    Missing& missing = missing_of(stream.slot);
    if (missing.stream != kNone) waits_for_[number].push_back(missing.stream);
    return fmt::format(
        "{} waits for {} of {} members of communicator {} (first missing: actor {}{})",
        name(stream), members.size() - exchange.arrived, members.size(), exchange.edge,
        missing.actor, missing.stream == kNone ? ", whose program never gets there" : "");
  }

  // The lowest member that has not reached an exchange and the stream on which it would.
  struct Missing {
    std::uint32_t exchange = kNone, actor = kNone, stream = kNone;
  };
  Missing& missing_of(std::uint32_t slot) {
    if (missing_.size() < state_.exchanges.size()) missing_.resize(state_.exchanges.size());
    Missing& missing = missing_[slot];
    if (missing.exchange == slot) return missing;
    missing.exchange = slot;
    const Exchange& exchange = state_.exchanges[slot];
    std::vector<std::uint32_t> here;
    for (std::uint32_t s : arrived(exchange))
      here.push_back(state_.streams[s].actor);
    std::sort(here.begin(), here.end());
    for (ActorId member : state_.communicator(exchange.edge).members) {
      const auto actor = static_cast<std::uint32_t>(member);
      if (std::binary_search(here.begin(), here.end(), actor)) continue;
      missing.actor = std::min(missing.actor, actor);
    }
    const std::vector<CommunicatorId>& ports =
        state_.machine.actors[ActorId{missing.actor}].communicators;
    const auto port = std::find(ports.begin(), ports.end(), CommunicatorId{exchange.edge});
    if (port != ports.end())
      missing.stream =
          stream_of(missing.actor, OpKind::collective,
                    static_cast<std::uint32_t>(port - ports.begin()), exchange.sequence);
    return missing;
  }

  // The stream on which an actor runs its op of that sequence number; kNone if it has none.
  std::uint32_t stream_of(std::uint32_t actor, OpKind kind, std::uint32_t port,
                          std::uint32_t sequence) const {
    const ActorState& owner = state_.actors[actor];
    std::uint32_t stream = 0;
    if (!state_.programs[owner.program].find(column_of(kind, port), sequence, stream)) return kNone;
    return owner.first_stream + stream;
  }

  std::string missing_messages(std::uint32_t number) {
    const StreamState& stream = state_.streams[number];
    const RunState::Heard heard = state_.heard(stream);
    const std::uint32_t inbox = state_.inbox_heard(stream);
    for (const ChannelId id : state_.machine.inboxes[InboxId{inbox}].channels) {
      if (state_.arrived[index(id)] > heard.round) continue;
      const ActorId source = state_.machine.channels[id].source;
      const std::vector<ChannelId>& ports = state_.machine.actors[source].channels;
      const auto port = std::find(ports.begin(), ports.end(), id);
      if (port == ports.end()) continue;
      const std::uint32_t sender =
          stream_of(static_cast<std::uint32_t>(source), OpKind::send,
                    static_cast<std::uint32_t>(port - ports.begin()), heard.round);
      if (sender != kNone) waits_for_[number].push_back(sender);
    }
    return fmt::format("{} waits for {} more messages of round {} of inbox {}", name(stream),
                       heard.needed - heard.arrived, heard.round + 1, inbox);
  }

  std::string missing_send(std::uint32_t number) {
    const StreamState& stream = state_.streams[number];
    const Exchange& exchange = state_.exchanges[stream.slot];
    const auto channel =
        static_cast<ChannelId>(exchange.edge - state_.machine.communicators.size());
    const ActorId source = state_.machine.channels[channel].source;
    const std::vector<ChannelId>& ports = state_.machine.actors[source].channels;
    const auto port = std::find(ports.begin(), ports.end(), channel);
    std::uint32_t sender = kNone;
    if (port != ports.end())
      sender = stream_of(static_cast<std::uint32_t>(source), OpKind::send,
                         static_cast<std::uint32_t>(port - ports.begin()), exchange.sequence);
    if (sender != kNone) waits_for_[number].push_back(sender);
    return fmt::format("{} waits for message {} of channel {} from actor {}{}", name(stream),
                       exchange.sequence + 1, index(channel), index(source),
                       sender == kNone ? ", whose program never sends it" : "");
  }

  std::string collective_mismatch(std::uint32_t number) const {
    const StreamState& stream = state_.streams[number];
    const Exchange& exchange = state_.exchanges[stream.slot];
    const std::uint32_t subject = state_.op(stream).subject;
    std::uint32_t other = kNone;  // the lowest actor that disagrees
    for (std::uint32_t s : arrived(exchange))
      if (state_.op(state_.streams[s]).subject != subject &&
          (other == kNone || state_.streams[s].actor < state_.streams[other].actor))
        other = s;
    if (other == kNone) return fmt::format("{} waits for members that disagree", name(stream));
    return fmt::format(
        "{} (transfer {}) is number {} on communicator {}, where actor {} has {} (transfer {})",
        name(stream), subject, exchange.sequence + 1, exchange.edge, state_.streams[other].actor,
        name(state_.streams[other]), state_.op(state_.streams[other]).subject);
  }

  std::string message_mismatch(std::uint32_t number) const {
    const StreamState& stream = state_.streams[number];
    const Exchange& exchange = state_.exchanges[stream.slot];
    const Channel& channel = state_.channel(exchange.edge);
    return fmt::format(
        "{} expects transfer {} as message {} of channel {}, actor {} sent transfer {}",
        name(stream), exchange.expected, exchange.sequence + 1,
        exchange.edge - state_.machine.communicators.size(), index(channel.source),
        exchange.subject);
  }

  // Depth-first over the streams, lowest first; the first edge back onto the path closes a cycle.
  std::vector<ActorId> find_cycle() const {
    enum class Mark : std::uint8_t { unseen, on_path, left };
    std::vector<Mark> mark(waits_for_.size(), Mark::unseen);
    struct Step {
      std::uint32_t stream;
      std::size_t next;
    };
    std::vector<Step> path;
    for (std::uint32_t root = 0; root < waits_for_.size(); ++root) {
      if (mark[root] != Mark::unseen) continue;
      path.push_back({root, 0});
      mark[root] = Mark::on_path;
      while (!path.empty()) {
        Step& top = path.back();
        if (top.next == waits_for_[top.stream].size()) {
          mark[top.stream] = Mark::left;
          path.pop_back();
          continue;
        }
        const std::uint32_t to = waits_for_[top.stream][top.next++];
        if (mark[to] == Mark::on_path) {
          std::vector<std::uint32_t> streams;
          for (const Step& step : path)
            streams.push_back(step.stream);
          return actors_of(std::find(streams.begin(), streams.end(), to), streams.end());
        }
        if (mark[to] == Mark::unseen) {
          mark[to] = Mark::on_path;
          path.push_back({to, 0});
        }
      }
    }
    return {};
  }

  // Streams of one actor that follow each other become one entry; the lowest actor comes first and
  // last.
  template <class Iterator>
  std::vector<ActorId> actors_of(Iterator begin, Iterator end) const {
    std::vector<ActorId> cycle;
    for (; begin != end; ++begin) {
      const ActorId actor{state_.streams[*begin].actor};
      if (cycle.empty() || cycle.back() != actor) cycle.push_back(actor);
    }
    if (cycle.size() > 1 && cycle.front() == cycle.back()) cycle.pop_back();
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    cycle.push_back(cycle.front());
    return cycle;
  }

  const RunState& state_;
  std::vector<std::vector<std::uint32_t>> waits_for_;  // streams, by stream
  std::vector<Missing> missing_;                       // by exchange
};

}  // namespace

Deadlock explain_deadlock(const RunState& state, Duration now) {
  return Explainer(state).explain(now);
}

}  // namespace trainyard::engine
