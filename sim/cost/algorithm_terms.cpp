// The law of a chosen algorithm on the links of a group. S the buffer, n ranks on N servers, g per
// server; hops and bytes by collective::Law.
//
//   latency   near_steps alpha_in + far_steps (alpha_out + what GroupShape::steps says of S/n)
//   bytes     max or sum of  near S / B_in  and  far S g / B_node
//
//   Domain: as of the closed forms; g ranks of a server share its NICs evenly.
//   Source: the algorithms' own files in sim/collective; docs/collectives.md.
#include <algorithm>

#include "sim/base/check.h"
#include "sim/cost/closed_form.h"

namespace trainyard::cost {
namespace {

double seconds_per_byte(Share share, BytesPerSecond bandwidth) {
  if (share.numerator() == 0) return 0;
  TRAINYARD_CHECK(bandwidth.count() > 0, "a group without bandwidth between its ranks");
  return share.value() / bandwidth.count();
}

}  // namespace

collective::Group group_of(const GroupShape& shape) {
  return {shape.ranks, shape.servers == 1 ? shape.ranks : shape.ranks_per_server, shape.servers};
}

MessageTerms MessageCost::collective(CollectiveKind kind,
                                     const collective::AlgorithmEntry* algorithm, Bytes bytes,
                                     const GroupShape& shape) const {
  if (algorithm == nullptr) return collective(kind, bytes, shape);
  TRAINYARD_CHECK(bytes.count() >= 0, "a collective of {} bytes", bytes.count());
  TRAINYARD_CHECK(shape.ranks >= 1, "a group of {} ranks", shape.ranks);
  if (shape.ranks == 1) return nothing();
  const collective::Group group = group_of(shape);
  TRAINYARD_CHECK(algorithm->supports(kind, group), "{} {}", algorithm->name,
                  algorithm->objection(kind, group));
  const collective::Law law = algorithm->law(kind, group);
  const double near = seconds_per_byte(law.near, shape.intra_bandwidth);
  const bool exchange = kind == CollectiveKind::all_to_all;
  const double reached = exchange ? shape.exchange_efficiency : 1;
  const double far = seconds_per_byte(law.far, reached * shape.inter_bandwidth / group.per_server);
  const double part = static_cast<double>(bytes.count()) / shape.ranks;
  MessageTerms terms = make_terms(
      hops(law.near_steps, shape.intra_latency) + hops(law.far_steps, shape.inter_latency) +
          law.far_steps * step_time(exchange ? shape.exchange_steps : shape.steps, part),
      law.streams ? std::max(near, far) : near + far, law.sent, bytes, Basis::analytic);
  add_start(shape, terms);
  return terms;
}

}  // namespace trainyard::cost
