// Everything goes to one rank, which adds it up and sends the result to each: what is written in an
// afternoon, and what a single parameter server among the workers does.
//
//   all-reduce = 2(n-1)(alpha + S/bandwidth), one partner after another, the sum before the copies
//   broadcast  =  (n-1)(alpha + S/bandwidth)
//
// The root's port carries (n-1) S each way where a ring carries 2(n-1)/n S: n/2 times as much.
//
// Source: Patarasuk & Yuan, JPDC 2009, section 2; Li et al., Scaling distributed machine learning
// with the parameter server, OSDI 2014.
#include <algorithm>

#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

std::string objection(CollectiveKind kind, const Group& /*group*/) {
  const bool known = kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast;
  return known ? "" : no_such_kind(kind);
}

int shards(CollectiveKind /*kind*/, const Group& /*group*/) {
  return 1;
}

std::vector<Message> build(CollectiveKind kind, const Group& group) {
  std::vector<Message> messages;
  int round = 0;
  if (kind == CollectiveKind::all_reduce)
    for (int rank = 1; rank < group.ranks; ++rank)
      messages.push_back({round++, rank, 0, 0, true});
  for (int rank = 1; rank < group.ranks; ++rank)
    messages.push_back({round++, 0, rank, 0, false});
  return messages;
}

std::vector<Edge> edges(CollectiveKind kind, const Group& group) {
  return edges_of(build(kind, group), 1);
}

// The root is on the first server, which is taken for the fullest.
Law law(CollectiveKind kind, const Group& group) {
  const int ways = kind == CollectiveKind::all_reduce ? 2 : 1;
  Law law;
  law.near_steps = ways * (group.per_server - 1);
  law.far_steps = ways * (group.ranks - group.per_server);
  law.near = Share(law.near_steps, 1);
  law.far = Share(law.far_steps, 1);
  law.streams = false;
  law.alone = true;
  law.sent = Share(group.ranks - 1, 1);
  return law;
}

}  // namespace

AlgorithmEntry naive_algorithm() {
  return {"naive",   "reduce to one rank, then broadcast from it; that rank's port is the limit",
          objection, shards,
          build,     edges,
          law};
}

}  // namespace trainyard::collective
