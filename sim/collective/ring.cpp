// Every rank sends to the next one; each round moves S/n over every edge.
//
//   reduce-scatter = all-gather = (n-1)(alpha + S/(n bandwidth))
//   all-reduce                  = 2(n-1)(alpha + S/(n bandwidth)), one after the other
//   shift                       = alpha + S/(n bandwidth)
//   broadcast                   = 2(n-1)(alpha + S/(n bandwidth)), n shards one behind the other
//                                 down a chain of n-1 edges: the last shard leaves in round n-1 and
//                                 takes n-1 hops; (n-1) alpha + S/bandwidth in small pieces
//
// On N servers of g ranks an all-reduce, all-gather or reduce-scatter is g rings at once, each with
// 1/g of the buffer, and each leaves a server at another rank, so that all NICs work: a rank hands
// (g-1)/g of what it sends to its neighbour and 1/g to its NIC. Of the hops of a shard's way, N-1
// are between servers. A broadcast and a shift have one ring, and use one NIC of each server.
//
// Source: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
// JPDC 2009, section 3; the rings of several servers: NCCL, src/graph/connect.cc and tuning.cc
// (steps between servers).
#include "sim/collective/ring_rounds.h"

namespace trainyard::collective {
namespace {

bool has_rings(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::all_gather ||
         kind == CollectiveKind::reduce_scatter;
}

// How many rings there are. A group without equal servers is one ring.
int ring_count(CollectiveKind kind, const Group& group) {
  return has_rings(kind) && group.even() && group.servers > 1 ? group.per_server : 1;
}

std::string objection(CollectiveKind kind, const Group& /*group*/) {
  return kind == CollectiveKind::all_to_all ? no_such_kind(kind) : "";
}

int shards(CollectiveKind kind, const Group& group) {
  return group.ranks * ring_count(kind, group);
}

// The rank at a place of ring `ring`: servers in order, each entered at local rank `ring`.
int rank_at(const Group& group, int ring, int place) {
  const int g = group.per_server;
  return place / g * g + (place + ring) % g;
}

void broadcast(int n, std::vector<Message>& messages) {
  for (int round = 0; round < 2 * (n - 1); ++round)
    for (int rank = 0; rank < n - 1; ++rank)
      if (const int shard = round - rank; 0 <= shard && shard < n)
        messages.push_back({round, rank, rank + 1, shard, false});
}

std::vector<Message> build(CollectiveKind kind, const Group& group) {
  const int n = group.ranks;
  std::vector<Message> places;
  if (kind == CollectiveKind::broadcast) broadcast(n, places);
  if (kind == CollectiveKind::shift)
    for (int rank = 0; n > 1 && rank < n; ++rank)
      places.push_back({0, rank, (rank + 1) % n, rank, false});
  if (kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_reduce)
    reduce_scatter_rounds(n, 0, places);
  if (kind == CollectiveKind::all_gather) all_gather_rounds(n, 0, places);
  if (kind == CollectiveKind::all_reduce) all_gather_rounds(n, n - 1, places);
  const int rings = ring_count(kind, group);
  if (rings == 1) return places;
  // Shard p of a ring is that of the rank at place p, of which each ring has one.
  std::vector<Message> messages;
  for (const Message& m : places) {
    for (int ring = 0; ring < rings; ++ring)
      messages.push_back({m.round, rank_at(group, ring, m.from), rank_at(group, ring, m.to),
                          rank_at(group, ring, m.shard) * rings + ring, m.reduce});
  }
  return messages;
}

std::vector<Edge> edges(CollectiveKind kind, const Group& group) {
  const int n = group.ranks;
  const int rings = ring_count(kind, group);
  const int used = kind == CollectiveKind::broadcast ? n - 1 : n;
  const Share each = wire_share(kind, n);
  std::vector<Edge> all;
  for (int ring = 0; n > 1 && ring < rings; ++ring)
    for (int place = 0; place < used; ++place)
      all.push_back({rank_at(group, ring, place), rank_at(group, ring, (place + 1) % n),
                     each * Share(1, rings)});
  return merged(std::move(all));
}

Law law(CollectiveKind kind, const Group& group) {
  const int n = group.ranks, far_hops = group.servers - 1;
  if (n == 1) return {};
  Law law;
  law.sent = wire_share(kind, n);
  const int rings = ring_count(kind, group);
  const Share inside = rings > 1 ? Share(rings - 1, rings) : Share(group.per_server > 1 ? 1 : 0, 1);
  const Share between = Share(group.servers > 1 ? 1 : 0, rings);
  law.near = law.sent * inside;
  law.far = law.sent * between;
  if (kind == CollectiveKind::shift) {
    law.far_steps = far_hops > 0 ? 1 : 0;
    law.near_steps = 1 - law.far_steps;
    return law;
  }
  const int ways = kind == CollectiveKind::all_reduce ? 2 : 1;
  law.far_steps = ways * far_hops;
  law.near_steps = ways * (n - 1) - law.far_steps;
  return law;
}

}  // namespace

AlgorithmEntry ring_algorithm() {
  return {"ring",    "each rank sends to the next; least bytes, latency grows with the group",
          objection, shards,
          build,     edges,
          law};
}

}  // namespace trainyard::collective
