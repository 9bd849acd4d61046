// What tests ask of casts: groups by the name of a connection, and a cast lowered with its ranks in
// order.
#pragma once

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/plan/cast.h"

namespace trainyard {

// Nothing if no program speaks on a connection of that name.
inline std::vector<std::vector<Rank>> groups_on(const plan::Cast& cast, std::string_view name) {
  std::vector<std::vector<Rank>> groups;
  const plan::Connection* connection = cast.find(name);
  if (connection == nullptr) return groups;
  for (std::size_t group = 0; group < connection->groups.size(); ++group) {
    std::vector<Rank>& ranks = groups.emplace_back();
    for (const plan::Player player : connection->groups[group])
      ranks.push_back(static_cast<Rank>(player));
  }
  return groups;
}

// Requires: a program speaks on it.
inline std::uint32_t port_on(const plan::Cast& cast, std::string_view name) {
  for (const plan::ConnectionId id : cast.connections.ids())
    if (cast.connections[id].name == name) return plan::port_of(id);
  FAIL("nobody speaks on " << name);
  return 0;
}

inline lower::Lowered lower_in_order(const plan::Cast& cast, const topologies::ClusterSpec& cluster,
                                     const topologies::Topology* topology,
                                     const cost::ComputeCost& compute,
                                     const cost::MessageCost& messages,
                                     const lower::LowerOptions& options, Duration launch = {}) {
  const lower::GpuLaws laws{.compute = &compute, .launch = launch};
  return lower::lower(cast, lower::in_order(cast, cluster), cluster, topology, {&laws, 1}, messages,
                      options);
}

}  // namespace trainyard
