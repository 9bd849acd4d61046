// On how many streams a player's ops use a port. A stream does one thing at a time, so no more
// transfers of a connection's group are in flight at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/plan/cast.h"

namespace trainyard::lower {

class PortStreams {
 public:
  // Cost: linear in the ops of the roles' blocks.
  explicit PortStreams(std::span<const plan::Role> roles);

  // Of any role; 0: no role uses that port.
  int collective(plan::ConnectionId connection) const {
    return count(collective_, plan::port_of(connection));
  }
  int sending(plan::ConnectionId connection) const {
    return count(sending_, plan::send_port(connection));
  }

 private:
  using Masks = std::vector<std::uint32_t>;  // by port: bit s, on stream s
  static int count(const Masks& masks, std::uint32_t port);

  Masks collective_, sending_;
};

}  // namespace trainyard::lower
