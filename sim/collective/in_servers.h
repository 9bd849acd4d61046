// Collectives in levels: inside the servers, between the ranks of the same place in each server,
// and inside again.
#pragma once

#include <vector>

#include "sim/collective/algorithm.h"

namespace trainyard::collective {

// Messages of a collective over the servers, which are its ranks.
struct Between {
  int shards = 1;
  std::vector<Message> messages;
};

// A ring reduce-scatter in each server, which leaves every rank with 1/g of its server's sum;
// `between` over the servers for each of those parts; a ring all-gather in each server. An
// all-gather begins with the second, a reduce-scatter ends with it. Shard s of part i is shard
// s g + i of the whole. Requires: kind is one of the three, the group is even.
std::vector<Message> in_servers(CollectiveKind kind, const Group& group, const Between& between);

}  // namespace trainyard::collective
