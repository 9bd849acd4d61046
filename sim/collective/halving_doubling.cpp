// Partners at distance n/2, n/4, .. 1 exchange the halves of what they still have to reduce, then
// the same way back they exchange what is complete. Powers of two only, q = log2 n.
//
//   reduce-scatter = all-gather = q alpha + (n-1) S/(n bandwidth)
//   all-reduce                  = 2 q alpha + 2(n-1) S/(n bandwidth)
//
// On N servers of g ranks the partners at distance g and more are in other servers: log2 N steps
// with (n-g)/n S, log2 g with (g-1)/n S, one after the other.
//
// Source: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in
// MPICH, IJHPCA 2005 (recursive halving, recursive doubling, Rabenseifner's all-reduce).
#include <algorithm>

#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

bool is_power_of_two(int n) {
  return n >= 1 && (n & (n - 1)) == 0;
}

std::string objection(CollectiveKind kind, const Group& group) {
  if (kind != CollectiveKind::all_reduce && kind != CollectiveKind::all_gather &&
      kind != CollectiveKind::reduce_scatter)
    return no_such_kind(kind);
  if (!is_power_of_two(group.ranks)) return "needs a power of two of ranks";
  return group.even() ? "" : "needs the same number of ranks on every server";
}

int shards(CollectiveKind /*kind*/, const Group& group) {
  return group.ranks;
}

int log2_of(int n) {
  int q = 0;
  while ((1 << q) < n)
    ++q;
  return q;
}

// Rank and partner differ in one bit, the distance d. Together they still hold the 2d shards that
// agree with them in the higher bits; the d of them that agree with the owner in bit d too go to
// (reducing) or come from (gathering) that owner.
void exchange(int n, int distance, int round, bool reduce, std::vector<Message>& messages) {
  for (int rank = 0; rank < n; ++rank) {
    const int partner = rank ^ distance;
    const int owner = reduce ? partner : rank;
    const int first = owner & ~(distance - 1);
    for (int shard = first; shard < first + distance; ++shard)
      messages.push_back({round, rank, partner, shard, reduce});
  }
}

std::vector<Message> build(CollectiveKind kind, const Group& group) {
  const int n = group.ranks;
  std::vector<Message> messages;
  int round = 0;
  if (kind != CollectiveKind::all_gather)
    for (int distance = n / 2; distance >= 1; distance /= 2)
      exchange(n, distance, round++, true, messages);
  if (kind != CollectiveKind::reduce_scatter)
    for (int distance = 1; distance < n; distance *= 2)
      exchange(n, distance, round++, false, messages);
  return messages;
}

std::vector<Edge> edges(CollectiveKind kind, const Group& group) {
  const int n = group.ranks;
  const int ways = kind == CollectiveKind::all_reduce ? 2 : 1;
  std::vector<Edge> result;
  for (int rank = 0; rank < n; ++rank) {
    const std::size_t first = result.size();
    for (int distance = 1; distance < n; distance *= 2)
      result.push_back({rank, rank ^ distance, Share(ways * distance, n)});
    std::sort(result.begin() + static_cast<std::ptrdiff_t>(first), result.end(),
              [](const Edge& a, const Edge& b) { return a.to < b.to; });
  }
  return result;
}

Law law(CollectiveKind kind, const Group& group) {
  const int ways = kind == CollectiveKind::all_reduce ? 2 : 1;
  const int n = group.ranks, g = group.per_server;
  Law law;
  law.near_steps = ways * log2_of(g);
  law.far_steps = ways * log2_of(group.servers);
  law.near = Share(ways * (g - 1), n);
  law.far = Share(ways * (n - g), n);
  law.streams = false;
  law.sent = wire_share(kind, n);
  return law;
}

}  // namespace

AlgorithmEntry halving_doubling_algorithm() {
  return {"halving_doubling",
          "recursive halving and doubling; least bytes in log2 steps, powers of two",
          objection,
          shards,
          build,
          edges,
          law};
}

}  // namespace trainyard::collective
