#include "sim/engine/run_state.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/base/check.h"
#include "sim/base/large_pages.h"

namespace trainyard::engine {
namespace {

// Every port names an edge that has the actor at the right end.
void check_ports(const Machine& machine) {
  for (const Channel& channel : machine.channels) {
    TRAINYARD_CHECK(index(channel.source) < machine.actors.size(), "channel from actor {} of {}",
                    index(channel.source), machine.actors.size());
    TRAINYARD_CHECK(index(channel.destination) < machine.actors.size(), "channel to actor {} of {}",
                    index(channel.destination), machine.actors.size());
    TRAINYARD_CHECK(channel.transfers < machine.transfers.size(), "transfers {} of {}",
                    channel.transfers, machine.transfers.size());
  }
  std::vector<bool> counted(machine.channels.size(), false);
  for (const Inbox& inbox : machine.inboxes) {
    TRAINYARD_CHECK(inbox.first >= 1 && inbox.first <= inbox.channels.size(),
                    "the first {} of {} channels", inbox.first, inbox.channels.size());
    for (const ChannelId channel : inbox.channels) {
      TRAINYARD_CHECK(index(channel) < counted.size() && !counted[index(channel)],
                      "channel {} is of no inbox, or of two", index(channel));
      counted[index(channel)] = true;
    }
  }
  for (const ActorId actor : machine.actors.ids())
    for (const InboxId inbox : machine.actors[actor].inboxes) {
      if (inbox == kNoInbox) continue;
      for (const ChannelId channel : machine.inboxes[inbox].channels)
        TRAINYARD_CHECK(machine.channels[channel].destination == actor,
                        "actor {} hears what is sent to another", index(actor));
    }
  std::vector<std::vector<std::uint32_t>> users(machine.communicators.size());
  for (ActorId actor : machine.actors.ids()) {
    for (CommunicatorId communicator : machine.actors[actor].communicators) {
      if (communicator == kNoCommunicator) continue;
      TRAINYARD_CHECK(index(communicator) < users.size(), "communicator {} of {}",
                      index(communicator), users.size());
      users[index(communicator)].push_back(static_cast<std::uint32_t>(actor));
    }
    for (ChannelId channel : machine.actors[actor].channels)
      TRAINYARD_CHECK(channel == kNoChannel || index(channel) < machine.channels.size(),
                      "channel {} of {}", index(channel), machine.channels.size());
  }
  std::vector<std::uint32_t> member_of(machine.actors.size(), kNone);
  for (CommunicatorId id : machine.communicators.ids()) {
    const Communicator& communicator = machine.communicators[id];
    TRAINYARD_CHECK(communicator.transfers < machine.transfers.size(), "transfers {} of {}",
                    communicator.transfers, machine.transfers.size());
    const auto mark = static_cast<std::uint32_t>(id);
    for (ActorId member : communicator.members) {
      TRAINYARD_CHECK(index(member) < member_of.size(), "member {} of {} actors", index(member),
                      member_of.size());
      TRAINYARD_CHECK(member_of[index(member)] != mark, "actor {} is twice in communicator {}",
                      index(member), mark);
      member_of[index(member)] = mark;
    }
    for (std::uint32_t actor : users[mark]) {
      TRAINYARD_CHECK(
          member_of[actor] == mark,
          "a port of actor {} names communicator {}, which it is no member of (or another "
          "port of it names that too)",
          actor, mark);
      member_of[actor] = kNone;
    }
  }
}

}  // namespace

RunState::RunState(const Machine& given) : machine(given) {
  check_ports(machine);
  edges.resize(machine.communicators.size() + machine.channels.size());
  listening.resize(machine.inboxes.size());
  if (!machine.inboxes.empty()) {
    inbox_of.assign(machine.channels.size(), kNone);
    arrived.assign(machine.channels.size(), 0);
  }
  for (const InboxId id : machine.inboxes.ids())
    for (const ChannelId channel : machine.inboxes[id].channels)
      inbox_of[index(channel)] = static_cast<std::uint32_t>(id);
  std::map<const Program*, std::uint32_t> program_of;
  std::map<std::tuple<std::uint32_t, const KernelTimes*, std::int64_t>, std::uint32_t> times_of;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> launches_of;
  std::size_t all_streams = 0;
  for (const Actor& actor : machine.actors)
    all_streams += actor.program != nullptr ? actor.program->streams.size() : 0;
  streams.reserve(all_streams);
  use_large_pages(streams);
  actors.reserve(machine.actors.size());
  use_large_pages(actors);
  std::uint32_t edges_named = 0;
  for (const Actor& actor : machine.actors) {
    TRAINYARD_CHECK(actor.program != nullptr && actor.times != nullptr, "an actor without program");
    TRAINYARD_CHECK(actor.units >= 1, "an actor with {} units", actor.units);
    TRAINYARD_CHECK(
        actor.times->weight.empty() || actor.times->weight.size() == actor.times->kernel.size(),
        "{} weights of {} kernels", actor.times->weight.size(), actor.times->kernel.size());
    TRAINYARD_CHECK(actor.launch >= Duration::zero(), "a launch takes {} ps", actor.launch.count());
    const auto number = static_cast<std::uint32_t>(actors.size());
    const auto [program, new_program] =
        program_of.try_emplace(actor.program, static_cast<std::uint32_t>(programs.size()));
    if (new_program) add_program(*actor.program);
    const CompiledProgram& compiled = programs[program->second];
    const auto [times, new_times] =
        times_of.try_emplace({code_of[program->second], actor.times, actor.launch.count()},
                             static_cast<std::uint32_t>(work_times.size()));
    if (new_times) work_times.push_back(compiled.work_times(*actor.times, actor.launch));
    const auto [launches, new_launches] = launches_of.try_emplace(
        {program->second, actor.launch.count()}, static_cast<std::uint32_t>(host_times.size()));
    if (new_launches) {
      std::vector<Duration> calls = compiled.call_times(actor.launch);
      std::vector<HostTimes::OfOp>& of_ops =
          host_times_of_code[{code_of[program->second], actor.launch.count()}];
      if (of_ops.empty()) of_ops = compiled.code->host_times(actor.launch);
      host_times.push_back({std::move(calls), of_ops});
    }
    actors.push_back({.first_stream = static_cast<std::uint32_t>(streams.size()),
                      .streams = compiled.streams,
                      .first_edge = edges_named,
                      .program = program->second,
                      .times = times->second,
                      .launches = launches->second});
    edges_named += compiled.columns;
    for (std::uint32_t s = 0; s < compiled.streams; ++s)
      streams.push_back({.actor = number, .head = {}});
  }
  needs.resize(streams.size());
  edge_numbers.resize(edges_named, kNone);
  for (ActorState& actor : actors) {
    actor.compiled = &programs[actor.program];
    actor.work = work_times[actor.times].data();
    actor.host = &host_times[actor.launches];
    for (std::uint32_t s = 0; s < actor.streams; ++s)
      seek(streams[actor.first_stream + s], *actor.compiled, s, 0);
  }
}

// Stages of a pipeline are like the one before, as a rule, or like an earlier one.
void RunState::add_program(const Program& program) {
  const auto number = static_cast<std::uint32_t>(programs.size());
  for (std::uint32_t other = number; other-- > 0;) {
    if (code_of[other] != other || !same_code(*programs[other].program, program)) continue;
    programs.emplace_back(program, programs[other].code);
    code_of.push_back(other);
    return;
  }
  programs.emplace_back(program);
  code_of.push_back(number);
}

std::uint32_t RunState::edge_of(const Actor& actor, const CompiledOp& op) const {
  if (op.kind == OpKind::collective) {
    TRAINYARD_CHECK(op.port < actor.communicators.size(), "collective on port {} of {}", op.port,
                    actor.communicators.size());
    TRAINYARD_CHECK(actor.communicators[op.port] != kNoCommunicator,
                    "collective on port {}, which has no communicator", op.port);
    return static_cast<std::uint32_t>(actor.communicators[op.port]);
  }
  TRAINYARD_CHECK(op.port < actor.channels.size(), "message on port {} of {}", op.port,
                  actor.channels.size());
  const ChannelId channel = actor.channels[op.port];
  TRAINYARD_CHECK(channel != kNoChannel, "message on port {}, which has no channel", op.port);
  const ActorId end = op.kind == OpKind::send ? machine.channels[channel].source
                                              : machine.channels[channel].destination;
  TRAINYARD_CHECK(&machine.actors[end] == &actor, "channel {} has actor {} at that end",
                  index(channel), index(end));
  return static_cast<std::uint32_t>(machine.communicators.size() + index(channel));
}

const Transfer& RunState::transfer(const Exchange& exchange) const {
  const std::uint32_t table = is_channel(exchange.edge) ? channel(exchange.edge).transfers
                                                        : communicator(exchange.edge).transfers;
  const std::vector<Transfer>& transfers = machine.transfers[table];
  TRAINYARD_CHECK(exchange.subject < transfers.size(), "transfer {} of {}", exchange.subject,
                  transfers.size());
  return transfers[exchange.subject];
}

KernelSequence RunState::kernels(const StreamState& stream) const {
  const CompiledProgram& compiled = program(stream);
  const CompiledOp& head = *stream.op;
  const Segment& segment = compiled.program->segments[compiled.works[head.subject].segment];
  const Actor& owner = actor(stream);
  const Duration from = host_times_of(actors[stream.actor], stream).from;
  return {.kernels = compiled.program->kernels.data() + segment.first_kernel,
          .times = owner.times,
          .weights = owner.times->weight.empty() ? nullptr : owner.times->weight.data(),
          .count = segment.kernels,
          .launches = head.launches,
          .launches_from = head.drained ? stream.begin : from,
          .launch = owner.launch,
          .units = owner.units};
}

std::uint32_t RunState::inbox_heard(const StreamState& stream) const {
  const std::vector<InboxId>& ports = actor(stream).inboxes;
  const CompiledOp& head = op(stream);
  TRAINYARD_CHECK(head.port < ports.size() && index(ports[head.port]) < listening.size(),
                  "no inbox on port {}", head.port);
  return static_cast<std::uint32_t>(ports[head.port]);
}

RunState::Heard RunState::heard(const StreamState& stream) const {
  const Inbox& inbox = machine.inboxes[InboxId{inbox_heard(stream)}];
  const std::uint32_t number = program(stream).sequence(stream.head.call, op(stream));
  Heard heard{.round = number / inbox.first, .needed = number % inbox.first + 1};
  for (const ChannelId channel : inbox.channels)
    if (arrived[index(channel)] > heard.round) ++heard.arrived;
  return heard;
}

bool RunState::hear(std::uint32_t number) {
  const Heard now = heard(streams[number]);
  if (now.arrived >= now.needed) return true;
  listening[inbox_heard(streams[number])].push_back(number);
  return false;
}

std::vector<std::uint32_t> RunState::arrive(std::uint32_t channel) {
  ++arrived[channel];
  std::vector<std::uint32_t> ended;
  std::erase_if(listening[inbox_of[channel]], [&](std::uint32_t number) {
    const Heard now = heard(streams[number]);
    if (now.arrived < now.needed) return false;
    ended.push_back(number);
    return true;
  });
  return ended;
}

std::uint32_t RunState::find_or_add(std::uint32_t edge, std::uint32_t sequence) {
  Edge& list = edges[edge];
  std::uint32_t before = list.last;
  if (before != kNone && exchanges[before].sequence >= sequence) {
    before = kNone;
    for (std::uint32_t x = list.first; exchanges[x].sequence <= sequence; x = exchanges[x].next) {
      if (exchanges[x].sequence == sequence) return x;
      before = x;
    }
  }
  std::uint32_t added;
  if (free_exchanges.empty()) {
    added = static_cast<std::uint32_t>(exchanges.size());
    exchanges.emplace_back();
  } else {
    added = free_exchanges.back();
    free_exchanges.pop_back();
    exchanges[added] = Exchange{};
  }
  exchanges[added].edge = edge;
  exchanges[added].sequence = sequence;
  std::uint32_t& link = before == kNone ? list.first : exchanges[before].next;
  exchanges[added].next = link;
  link = added;
  if (exchanges[added].next == kNone) list.last = added;
  return added;
}

void RunState::remove(std::uint32_t exchange) {
  Edge& list = edges[exchanges[exchange].edge];
  std::uint32_t before = kNone;
  for (std::uint32_t x = list.first; x != exchange; x = exchanges[x].next)
    before = x;
  (before == kNone ? list.first : exchanges[before].next) = exchanges[exchange].next;
  if (list.last == exchange) list.last = before;
  ++list.removed;
  free_exchanges.push_back(exchange);
}

}  // namespace trainyard::engine
