// In n-1 rounds every rank deals with every other: in round k it sends to the one k+1 places on, so
// that each port carries one message at a time. An all-to-all sends each its own shard, a
// reduce-scatter the shard that it is to reduce, an all-gather the sender's own.
//
//   time = (n-1)(alpha + S/(n bandwidth))   on a non-blocking switch
//
// On servers of g ranks, n-g of a rank's messages leave its server: (g-1) alpha1 + (n-g) alpha2 and
// the larger of (g-1)/n S/B1 and (n-g)/n S/B2, as the messages do not need one another.
//
// Source: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in
// MPICH, IJHPCA 2005, section 4.4 (pairwise exchange, long messages) and 4.2 (reduce-scatter).
#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

std::string objection(CollectiveKind kind, const Group& /*group*/) {
  const bool known = kind == CollectiveKind::all_to_all || kind == CollectiveKind::all_gather ||
                     kind == CollectiveKind::reduce_scatter;
  return known ? "" : no_such_kind(kind);
}

int shards(CollectiveKind /*kind*/, const Group& group) {
  return group.ranks;
}

std::vector<Message> build(CollectiveKind kind, const Group& group) {
  const int n = group.ranks;
  std::vector<Message> messages;
  for (int round = 0; round < n - 1; ++round) {
    for (int rank = 0; rank < n; ++rank) {
      const int to = (rank + round + 1) % n;
      messages.push_back({round, rank, to, kind == CollectiveKind::all_gather ? rank : to,
                          kind == CollectiveKind::reduce_scatter});
    }
  }
  return messages;
}

std::vector<Edge> edges(CollectiveKind /*kind*/, const Group& group) {
  std::vector<Edge> result;
  for (int from = 0; from < group.ranks; ++from)
    for (int to = 0; to < group.ranks; ++to)
      if (from != to) result.push_back({from, to, Share(1, group.ranks)});
  return result;
}

// Nothing in the data asks for an order, but a rank starts one message after another. Of servers
// with different numbers of ranks a rank of the fullest has the most inside, one of another the
// most outside.
Law law(CollectiveKind /*kind*/, const Group& group) {
  const int n = group.ranks;
  const int least = group.even() ? group.per_server : 1;
  Law law;
  law.near_steps = group.per_server - 1;
  law.far_steps = n - group.per_server;
  law.near = Share(group.per_server - 1, n);
  law.far = Share(group.servers > 1 ? n - least : 0, n);
  law.sent = Share(n - 1, n);
  return law;
}

}  // namespace

AlgorithmEntry pairwise_algorithm() {
  return {"pairwise", "every rank sends to every other, one partner per round",
          objection,  shards,
          build,      edges,
          law};
}

}  // namespace trainyard::collective
