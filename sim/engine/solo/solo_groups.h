// Actors that are alike and members of one communicator (the tensor-parallel ranks of a stage,
// say): once they have begun an op at the same instant they are in step, and each goes on as if it
// were alone, until somebody else touches one of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/run_state.h"

namespace trainyard::engine {

class SoloGroups {
 public:
  // Keeps it by reference.
  explicit SoloGroups(const RunState& state);

  // The members of the actor's group; empty: it has none.
  std::span<const ActorId> members(std::uint32_t actor) const;
  // Bit c of columns below 64: all of the group and nobody else are members.
  std::uint64_t columns(std::uint32_t actor) const {
    return group_of_[actor] == kNone ? 0 : groups_[group_of_[actor]].columns;
  }
  // The actor begins an op at `now`: whether all of its group have done so, it the last.
  // Requires: it has a group.
  bool is_last(std::uint32_t actor, Duration now, const Position& head);

 private:
  struct Group {
    CommunicatorId communicator{};
    std::uint64_t columns = 0;
    // How many have begun which op when.
    Duration at{};
    std::uint32_t call = 0, op = 0;
    std::size_t begun = 0;
  };

  std::uint32_t main_column(const CompiledProgram& program, const Actor& actor) const;
  bool are_alike(CommunicatorId communicator) const;
  bool take_as_long(CommunicatorId a, CommunicatorId b) const;
  Group group_around(std::uint32_t actor, CommunicatorId communicator) const;

  const RunState& state_;
  std::vector<std::uint32_t> group_of_;  // by actor
  std::vector<Group> groups_;
};

}  // namespace trainyard::engine
