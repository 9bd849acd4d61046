// S bytes of rows on a rank, k per token; n ranks on N servers, g per server; V servers and R ranks
// visited by a token (models/layer/expert_routing.h).
//
//   between  (N-1)/N S V/k   over a rank's NICs        sent: rows for other servers
//   inside   (g-1)/g S R/k   over a rank's NVLinks     sent: own rows, and those passed on
//   time     the larger of both levels' latencies, plus the larger of both levels' bytes over
//            bandwidth
//
// A token reaches each rank of its experts over one of the N ranks with its sender's place, which
// is the rank itself for one in g: R (g-1)/g rows move inside the servers for every token.
//
//   Domain: even calls; servers with equal parts of the group.
#include "sim/cost/routed_exchange.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"

namespace trainyard::cost {
namespace {

Bytes scaled(Bytes bytes, double factor) {
  return Bytes(static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes.count()) * factor)));
}

Seconds linear(const MessageTerms& terms) {
  return terms.wire_bytes > Bytes(0) ? terms.wire_bytes / terms.bandwidth : Seconds{};
}

}  // namespace

SharedRows shared_rows(const models::Routing& routing, Bytes rows, const GroupShape& shape) {
  TRAINYARD_CHECK(routing.experts > 0, "rows without experts");
  const auto top_k = static_cast<double>(routing.top_k);
  return {scaled(rows, parts_visited(routing, shape.servers) / top_k),
          scaled(rows, parts_visited(routing, shape.ranks) / top_k)};
}

MessageTerms hierarchical_all_to_all(const MessageCost& messages, const SharedRows& rows,
                                     const GroupShape& shape) {
  constexpr CollectiveKind kKind = CollectiveKind::all_to_all;
  if (shape.servers == 1) return messages.collective(kKind, rows.inside, shape);
  GroupShape between = shape;
  between.ranks = shape.servers;
  between.ranks_per_server = 1;
  between.inter_bandwidth = shape.inter_bandwidth / shape.ranks_per_server;
  MessageTerms terms = messages.collective(kKind, rows.between, between);
  if (shape.ranks_per_server == 1) return terms;
  GroupShape inside = shape;
  inside.ranks = shape.ranks_per_server;
  inside.servers = 1;
  const MessageTerms within = messages.collective(kKind, rows.inside, inside);
  terms.latency = std::max(terms.latency, within.latency);
  if (linear(within) > linear(terms)) {
    terms.basis = within.basis;
    terms.reach = within.reach;
    terms.bandwidth =
        BytesPerSecond(static_cast<double>(terms.wire_bytes.count()) / linear(within).count());
  }
  return terms;
}

}  // namespace trainyard::cost
