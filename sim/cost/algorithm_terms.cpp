// The law of a chosen algorithm on the links of a group. S the buffer, n ranks on N servers, g per
// server; hops and bytes by collective::Law.
//
//   latency   near_steps alpha_in + far_steps (alpha_out + what GroupShape::steps says of S/n)
//   bytes     max or sum of  near S / B_in  and  far S g / B_node, g ranks of a server; of one that
//             sends while the others do not, far S / one NIC
//
//   Domain: as of the closed forms; g ranks of a server share its NICs evenly.
//   Source: the algorithms' own files in sim/collective; docs/collectives.md.
#include <algorithm>
#include <vector>

#include "sim/base/check.h"
#include "sim/cost/closed_form.h"

namespace trainyard::cost {
namespace {

double per_byte_of_share(Share share, BytesPerSecond bandwidth) {
  if (share.numerator() == 0) return 0;
  TRAINYARD_CHECK(bandwidth.count() > 0, "a group without bandwidth between its ranks");
  return share.value() / bandwidth.count();
}

// Times of NCCL's tuning are good for their ratio alone.
void take_protocol(const std::vector<nccl::Choice>& choices, nccl::Protocol protocol,
                   MessageTerms& terms) {
  const auto taken =
      std::find_if(choices.begin(), choices.end(),
                   [protocol](const nccl::Choice& choice) { return choice.protocol == protocol; });
  TRAINYARD_CHECK(taken != choices.end(), "no {} among {} choices", name(protocol), choices.size());
  const double longer = taken->expected / choices.front().expected;
  terms.latency *= longer;
  terms.bandwidth = terms.bandwidth / longer;
  terms.basis = Basis::analytic;
  if (terms.channels > 0) terms.channels = std::min(terms.channels, taken->channels);
}

}  // namespace

std::vector<nccl::Choice> nccl_choices(CollectiveKind kind,
                                       const collective::AlgorithmEntry* algorithm, Bytes bytes,
                                       const GroupShape& shape) {
  if (!shape.nccl) return {};
  std::vector<nccl::Choice> list = nccl::choices(kind, bytes,
                                                 {.group = group_of(shape),
                                                  .machine = *shape.nccl,
                                                  .inside = shape.intra_bandwidth,
                                                  .between = shape.inter_bandwidth});
  if (algorithm != nullptr)
    std::erase_if(list, [algorithm](const nccl::Choice& choice) {
      return name(choice.method) != algorithm->name;
    });
  return list;
}

collective::Group group_of(const GroupShape& shape) {
  return {shape.ranks, shape.servers == 1 ? shape.ranks : shape.ranks_per_server, shape.servers};
}

MessageTerms MessageCost::collective(CollectiveKind kind, const collective::Choice& choice,
                                     Bytes bytes, const GroupShape& shape) const {
  const collective::AlgorithmEntry* algorithm = choice.algorithm;
  MessageTerms terms = algorithm == nullptr ? collective(kind, bytes, shape)
                                            : by_algorithm(kind, *algorithm, bytes, shape);
  if (!shape.by_kernels) terms.channels = 0;
  if (choice.protocol && shape.ranks > 1)
    take_protocol(nccl_choices(kind, algorithm, bytes, shape), *choice.protocol, terms);
  return terms;
}

MessageTerms MessageCost::by_algorithm(CollectiveKind kind,
                                       const collective::AlgorithmEntry& algorithm, Bytes bytes,
                                       const GroupShape& shape) const {
  TRAINYARD_CHECK(bytes.count() >= 0, "a collective of {} bytes", bytes.count());
  TRAINYARD_CHECK(shape.ranks >= 1, "a group of {} ranks", shape.ranks);
  if (shape.ranks == 1) return nothing();
  const collective::Group group = group_of(shape);
  TRAINYARD_CHECK(algorithm.supports(kind, group), "{} {}", algorithm.name,
                  algorithm.objection(kind, group));
  const collective::Law law = algorithm.law(kind, group);
  const double near = per_byte_of_share(law.near, inside_bandwidth(kind, shape));
  const bool exchange = kind == CollectiveKind::all_to_all;
  const double reached = exchange ? shape.exchange_efficiency : 1;
  const bool alone = law.alone && shape.nic > BytesPerSecond(0);
  const BytesPerSecond out =
      alone ? std::min(shape.inter_bandwidth, shape.nic) : shape.inter_bandwidth / group.per_server;
  const double far = per_byte_of_share(law.far, reached * out);
  const double size = static_cast<double>(bytes.count());
  const Seconds step =
      law.levels ? step_time(shape.tree_steps, size)
                 : step_time(exchange ? shape.exchange_steps : shape.steps, size / shape.ranks);
  MessageTerms terms =
      make_terms(hops(law.near_steps, shape.intra_latency) +
                     hops(law.far_steps, shape.inter_latency) + law.far_steps * step,
                 law.streams ? std::max(near, far) : near + far, law.sent, bytes, Basis::analytic);
  add_start(shape, terms);
  return terms;
}

}  // namespace trainyard::cost
