// In levels, on N servers of g ranks: a reduce-scatter inside each server, the collective over the
// servers for each of the g parts at once, an all-gather inside each server; all of them rings.
//
//   all-reduce       2(g-1)(a1 + S/(g B1)) + 2(N-1)(a2 + S/(n B2))
//   all-gather, reduce-scatter   half of that
//
// Every rank's NIC carries 1/g of what a ring over the servers carries. Pieces of the buffer pass
// through both levels at once, so that the slower one counts; the sum would be 1.3 to 1.6 times
// slower than what is measured (docs/cost-messages.md). On one server it is the ring.
//
// Source: Cho et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous
// network hierarchy, SysML 2019, section 3.
#include "sim/collective/in_servers.h"
#include "sim/collective/ring_rounds.h"

namespace trainyard::collective {
namespace {

std::string objection(CollectiveKind kind, const Group& group) {
  if (kind != CollectiveKind::all_reduce && kind != CollectiveKind::all_gather &&
      kind != CollectiveKind::reduce_scatter)
    return no_such_kind(kind);
  return group.even() ? "" : "needs the same number of ranks on every server";
}

int shards(CollectiveKind /*kind*/, const Group& group) {
  return group.ranks;
}

std::vector<Message> build(CollectiveKind kind, const Group& group) {
  const int servers = group.servers;
  Between ring{servers, {}};
  if (kind != CollectiveKind::all_gather) reduce_scatter_rounds(servers, 0, ring.messages);
  if (kind != CollectiveKind::reduce_scatter)
    all_gather_rounds(servers, rounds(ring.messages), ring.messages);
  return in_servers(kind, group, ring);
}

// A ring in each server, and one through the ranks of each place.
std::vector<Edge> edges(CollectiveKind kind, const Group& group) {
  const int g = group.per_server, n = group.ranks, servers = group.servers;
  std::vector<Edge> all;
  for (int rank = 0; rank < n; ++rank) {
    if (g > 1) all.push_back({rank, rank / g * g + (rank + 1) % g, wire_share(kind, g)});
    if (servers > 1) all.push_back({rank, (rank + g) % n, wire_share(kind, servers) * Share(1, g)});
  }
  return merged(std::move(all));
}

Law law(CollectiveKind kind, const Group& group) {
  const int g = group.per_server, servers = group.servers;
  const int ways = kind == CollectiveKind::all_reduce ? 2 : 1;
  Law law;
  law.near_steps = ways * (g - 1);
  law.far_steps = ways * (servers - 1);
  law.near = wire_share(kind, g);
  law.far = wire_share(kind, servers) * Share(1, g);
  law.sent = law.near + law.far;
  return law;
}

}  // namespace

AlgorithmEntry hierarchical_algorithm() {
  return {"hierarchical",
          "rings inside the servers, across, and inside again",
          objection,
          shards,
          build,
          edges,
          law};
}

}  // namespace trainyard::collective
