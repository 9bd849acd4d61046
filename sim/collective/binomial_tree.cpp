// Broadcast down a binomial tree: in each round every rank that has the buffer sends it on, to the
// rank half as far away as in the round before.
//
//   time = ceil(log2 n)(alpha + S/bandwidth), the whole buffer in each round
//
// The far rounds come first, so that one copy enters each server where a power of two of ranks
// shares one.
//
// Source: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in
// MPICH, IJHPCA 2005, section 4.3 (broadcast of short messages).
#include <algorithm>

#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

std::string objection(CollectiveKind kind, const Group& /*group*/) {
  return kind == CollectiveKind::broadcast ? "" : no_such_kind(kind);
}

int shards(CollectiveKind /*kind*/, const Group& /*group*/) {
  return 1;
}

std::vector<Message> build(CollectiveKind /*kind*/, const Group& group) {
  int distance = 1;
  while (distance < group.ranks)
    distance *= 2;
  std::vector<Message> messages;
  for (int round = 0; distance > 1; ++round) {
    distance /= 2;
    for (int rank = 0; rank + distance < group.ranks; rank += 2 * distance)
      messages.push_back({round, rank, rank + distance, 0, false});
  }
  return messages;
}

std::vector<Edge> edges(CollectiveKind kind, const Group& group) {
  return edges_of(build(kind, group), 1);
}

// A round with any message between servers waits for that one. Rank 0 sends in every round.
Law law(CollectiveKind kind, const Group& group) {
  const std::vector<Message> messages = build(kind, group);
  const auto is_near = [&](const Message& m) {
    return m.from / group.per_server == m.to / group.per_server;
  };
  Law law;
  law.streams = false;
  int near_rounds = 0;
  for (std::size_t first = 0, last = 0; first < messages.size(); first = last) {
    while (last < messages.size() && messages[last].round == messages[first].round)
      ++last;
    const auto begin = messages.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = messages.begin() + static_cast<std::ptrdiff_t>(last);
    near_rounds += std::any_of(begin, end, is_near) ? 1 : 0;
    law.far_steps += std::all_of(begin, end, is_near) ? 0 : 1;
  }
  law.near_steps = rounds(messages) - law.far_steps;
  law.near = Share(near_rounds, 1);
  law.far = Share(law.far_steps, 1);
  law.sent = Share(rounds(messages), 1);
  return law;
}

}  // namespace

AlgorithmEntry binomial_tree_algorithm() {
  return {"binomial_tree",
          "broadcast in log2 rounds, each of the whole buffer",
          objection,
          shards,
          build,
          edges,
          law};
}

}  // namespace trainyard::collective
