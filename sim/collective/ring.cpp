// Every rank sends to the next one; each round moves S/n over every edge.
//
//   reduce-scatter = all-gather = (n-1)(alpha + S/(n bandwidth))
//   all-reduce                  = 2(n-1)(alpha + S/(n bandwidth)), one after the other
//   shift                       = alpha + S/(n bandwidth)
//   broadcast                   = 2(n-1)(alpha + S/(n bandwidth)), n shards one behind the other
//                                 down a chain of n-1 edges: the last shard leaves in round n-1 and
//                                 takes n-1 hops
//
// Source: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
// JPDC 2009, section 3.
#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

bool supports(CollectiveKind kind, int n) {
  return n >= 1 && kind != CollectiveKind::all_to_all;
}

int shards(CollectiveKind /*kind*/, int n) {
  return n;
}

// Rank r begins by sending shard r-1; after n-1 rounds shard r has come around complete.
void reduce_scatter(int n, std::vector<Message>& messages) {
  for (int round = 0; round < n - 1; ++round)
    for (int rank = 0; rank < n; ++rank)
      messages.push_back({round, rank, (rank + 1) % n, (rank - 1 - round + 2 * n) % n, true});
}

// Rank r begins by sending shard r, and passes on what it received the round before.
void all_gather(int n, int first_round, std::vector<Message>& messages) {
  for (int round = 0; round < n - 1; ++round)
    for (int rank = 0; rank < n; ++rank)
      messages.push_back(
          {first_round + round, rank, (rank + 1) % n, (rank - round + n) % n, false});
}

void shift(int n, std::vector<Message>& messages) {
  for (int rank = 0; n > 1 && rank < n; ++rank)
    messages.push_back({0, rank, (rank + 1) % n, rank, false});
}

void broadcast(int n, std::vector<Message>& messages) {
  for (int round = 0; round < 2 * (n - 1); ++round)
    for (int rank = 0; rank < n - 1; ++rank)
      if (const int shard = round - rank; 0 <= shard && shard < n)
        messages.push_back({round, rank, rank + 1, shard, false});
}

std::vector<Message> build(CollectiveKind kind, int n) {
  std::vector<Message> messages;
  if (kind == CollectiveKind::broadcast) broadcast(n, messages);
  if (kind == CollectiveKind::shift) shift(n, messages);
  if (kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_reduce)
    reduce_scatter(n, messages);
  if (kind == CollectiveKind::all_gather) all_gather(n, 0, messages);
  if (kind == CollectiveKind::all_reduce) all_gather(n, n - 1, messages);
  return messages;
}

std::vector<Edge> edges(CollectiveKind kind, int n) {
  std::vector<Edge> result;
  const int used = kind == CollectiveKind::broadcast ? n - 1 : n;
  for (int rank = 0; n > 1 && rank < used; ++rank)
    result.push_back({rank, (rank + 1) % n, wire_share(kind, n)});
  return result;
}

int latency_steps(CollectiveKind kind, int n) {
  if (kind == CollectiveKind::shift) return n > 1 ? 1 : 0;
  return (kind == CollectiveKind::all_reduce ? 2 : 1) * (n - 1);
}

}  // namespace

AlgorithmEntry ring_algorithm() {
  return {"ring",       "each rank sends to the next; least bytes, latency grows with the group",
          supports,     shards,
          build,        edges,
          latency_steps};
}

}  // namespace trainyard::collective
