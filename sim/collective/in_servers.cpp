#include "sim/collective/in_servers.h"

#include <algorithm>

#include "sim/collective/ring_rounds.h"

namespace trainyard::collective {

std::vector<Message> in_servers(CollectiveKind kind, const Group& group, const Between& between) {
  const int g = group.per_server;
  std::vector<Message> messages;
  // Part m.shard of a round inside a server is a shard of each server's share.
  const auto inside = [&](const std::vector<Message>& of_server, int first_round) {
    for (const Message& m : of_server)
      for (int first = 0; first < group.ranks; first += g)
        for (int s = 0; s < between.shards; ++s)
          messages.push_back(
              {first_round + m.round, first + m.from, first + m.to, s * g + m.shard, m.reduce});
  };
  int round = 0;
  std::vector<Message> reduce, gather;
  reduce_scatter_rounds(g, 0, reduce);
  all_gather_rounds(g, 0, gather);
  if (kind != CollectiveKind::all_gather) {
    inside(reduce, round);
    round += rounds(reduce);
  }
  for (const Message& m : between.messages)
    for (int place = 0; place < g; ++place)
      messages.push_back(
          {round + m.round, m.from * g + place, m.to * g + place, m.shard * g + place, m.reduce});
  round += rounds(between.messages);
  if (kind != CollectiveKind::reduce_scatter) inside(gather, round);
  return messages;
}

}  // namespace trainyard::collective
