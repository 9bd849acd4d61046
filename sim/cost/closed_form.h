// Closed forms of collectives: hops and bytes over the busiest edge. Private to the room.
// Source: docs/cost-messages.md.
#pragma once

#include <cstdint>

#include "sim/collective/share.h"
#include "sim/cost/cost.h"

namespace trainyard::cost {

using collective::Share;
using collective::wire_share;  // all-to-all, which has no ring: what a rank sends

// The fraction that a rank's link to a reducing switch carries in an all-reduce.
Share in_switch_share(int ranks);

// Steps of a ring over `ranks`, one hop each. Requires: ranks >= 1.
std::int64_t ring_steps(CollectiveKind kind, std::int64_t ranks);

// So many times the latency of one.
Seconds hops(std::int64_t count, Duration each);

// Floor of the binary logarithm. Requires: value >= 1.
int log2_floor(int value);

// Terms whose time is latency + per_byte * bytes exactly.
MessageTerms make_terms(Seconds latency, double per_byte, Share share, Bytes bytes, Basis basis);

// No time and no bytes: a collective of one rank.
MessageTerms nothing();

// What the inside of the servers adds to a collective over several of them.
struct Inside {
  Seconds latency{};       // start-up and hops
  double per_byte = 0;     // seconds per byte of the buffer; 0 with one rank per server
  bool in_switch = false;  // the switches reduce, as leaves of the tree between the servers
};

// What a ring, or an all-to-all, reaches inside a server.
BytesPerSecond inside_bandwidth(CollectiveKind kind, const GroupShape& shape);

// A collective on one server. Requires: two or more ranks.
MessageTerms on_one_server(CollectiveKind kind, Bytes bytes, const GroupShape& shape);

// The closed form of what happens inside. Requires: two or more servers.
Inside inside_servers(CollectiveKind kind, const GroupShape& shape);

// A collective over two or more servers, given its inside, of which GroupShape::start replaces the
// latency.
MessageTerms over_servers(CollectiveKind kind, Bytes bytes, const GroupShape& shape, Inside inside);

// alpha + S / B between two ranks.
MessageTerms between_two(Bytes bytes, const GroupShape& shape);

}  // namespace trainyard::cost
