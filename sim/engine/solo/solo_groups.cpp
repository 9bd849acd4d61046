#include "sim/engine/solo/solo_groups.h"

#include <algorithm>

namespace trainyard::engine {
namespace {

constexpr std::size_t kMostMembers = 64;
constexpr std::uint32_t kMostColumns = 64;

}  // namespace

SoloGroups::SoloGroups(const RunState& state)
    : state_(state), group_of_(state.actors.size(), kNone) {
  std::vector<std::uint32_t> columns(state.programs.size(), kNone);
  for (std::uint32_t actor = 0; actor < state.actors.size(); ++actor) {
    if (group_of_[actor] != kNone) continue;
    const ActorState& owner = state.actors[actor];
    const Actor& source = state.machine.actors[ActorId{actor}];
    std::uint32_t& column = columns[owner.program];
    if (column == kNone) column = main_column(*owner.compiled, source);
    const std::uint32_t port =
        column < owner.compiled->columns ? owner.compiled->collective_ports[column] : kNone;
    if (port >= source.communicators.size()) continue;
    const CommunicatorId communicator = source.communicators[port];
    if (communicator == kNoCommunicator || !are_alike(communicator)) continue;
    for (const ActorId member : state.machine.communicators[communicator].members)
      group_of_[index(member)] = static_cast<std::uint32_t>(groups_.size());
    groups_.push_back(group_around(actor, communicator));
  }
}

// That of the collectives with other members of which there are most; behind all: there is none.
std::uint32_t SoloGroups::main_column(const CompiledProgram& program, const Actor& actor) const {
  std::vector<std::uint32_t> count(std::min(program.columns, kMostColumns));
  for (const CompiledOp& op : program.ops) {
    if (op.kind != OpKind::collective || op.column >= count.size()) continue;
    if (op.port >= actor.communicators.size() || actor.communicators[op.port] == kNoCommunicator)
      continue;
    const std::size_t members =
        state_.machine.communicators[actor.communicators[op.port]].members.size();
    if (members > 1 && members <= kMostMembers) ++count[op.column];
  }
  const auto most = std::max_element(count.begin(), count.end());
  if (most == count.end() || *most == 0) return program.columns;
  return static_cast<std::uint32_t>(most - count.begin());
}

// Whether all members take the same times for the same program, none is in another group, and
// nothing but them delays the communicator.
bool SoloGroups::are_alike(CommunicatorId communicator) const {
  const Communicator& group = state_.machine.communicators[communicator];
  if (group.members.size() < 2 || group.members.size() > kMostMembers || !group.paths.empty())
    return false;
  const ActorState& first = state_.actors[index(group.members.front())];
  const Actor& source = state_.machine.actors[group.members.front()];
  return std::all_of(group.members.begin(), group.members.end(), [&](ActorId member) {
    const ActorState& other = state_.actors[index(member)];
    const Actor& actor = state_.machine.actors[member];
    return other.times == first.times && other.launches == first.launches &&
           actor.units == source.units && group_of_[index(member)] == kNone &&
           std::equal(actor.communicators.begin(), actor.communicators.end(),
                      source.communicators.begin(), source.communicators.end(),
                      [&](CommunicatorId a, CommunicatorId b) { return take_as_long(a, b); });
  });
}

// Whether collectives that concern an actor alone take as long for another; of those with others
// nothing is asked.
bool SoloGroups::take_as_long(CommunicatorId a, CommunicatorId b) const {
  if (a == b) return true;
  if (a == kNoCommunicator || b == kNoCommunicator) return false;
  const Communicator &one = state_.machine.communicators[a],
                     &other = state_.machine.communicators[b];
  const bool is_alone = one.members.size() == 1 && one.paths.empty();
  if (is_alone != (other.members.size() == 1 && other.paths.empty())) return false;
  return !is_alone || one.transfers == other.transfers;
}

// With all columns of which the same actors are the members.
SoloGroups::Group SoloGroups::group_around(std::uint32_t number,
                                           CommunicatorId communicator) const {
  Group group{.communicator = communicator};
  const std::vector<ActorId>& members = state_.machine.communicators[communicator].members;
  const CompiledProgram& program = *state_.actors[number].compiled;
  for (std::uint32_t c = 0; c < std::min(program.columns, kMostColumns); ++c) {
    const std::uint32_t port = program.collective_ports[c];
    const Actor& actor = state_.machine.actors[ActorId{number}];
    if (port >= actor.communicators.size() || actor.communicators[port] == kNoCommunicator)
      continue;
    const CommunicatorId own = actor.communicators[port];
    const Communicator& other = state_.machine.communicators[own];
    if (other.members != members || !other.paths.empty()) continue;
    const bool is_shared = std::all_of(members.begin(), members.end(), [&](ActorId member) {
      return state_.machine.actors[member].communicators[port] == own;
    });
    if (is_shared) group.columns |= std::uint64_t{1} << c;
  }
  return group;
}

std::span<const ActorId> SoloGroups::members(std::uint32_t actor) const {
  if (group_of_[actor] == kNone) return {};
  return state_.machine.communicators[groups_[group_of_[actor]].communicator].members;
}

bool SoloGroups::is_last(std::uint32_t actor, Duration now, const Position& head) {
  Group& group = groups_[group_of_[actor]];
  if (group.at != now || group.call != head.call || group.op != head.at) group.begun = 0;
  group.at = now;
  group.call = head.call;
  group.op = head.at;
  ++group.begun;
  return group.begun == state_.machine.communicators[group.communicator].members.size();
}

}  // namespace trainyard::engine
