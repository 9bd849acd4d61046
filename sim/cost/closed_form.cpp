// Collectives from hop latency and bandwidth alone. S the buffer, n ranks on N servers, g per
// server.
//
//   all-reduce, one server     2(n-1) alpha + 2(n-1)/n S/B                   (ring)
//   all-gather, reduce-scatter  (n-1) alpha +  (n-1)/n S/B                   (ring)
//   broadcast                   (n-1) alpha +          S/B                   (pipelined ring)
//   all-to-all                  (n-1) alpha +  (n-1)/n S/B                   (pairwise)
//   shift                             alpha +      1/n S/B                   (one step of a ring)
//   all-reduce, N servers      tree or ring, each max(inside, between) + hops:
//     inside  2(g-1)/g S/B_intra, 2(g-1) hops
//     tree    S/B_node (N = 2) or 2 S/B_node, 2 floor(log2 N) hops
//     ring    2(n-1)/n S/B_node, 2(N-1) hops
//     where switches reduce, the tree, of which inside and between reach .92; else the one that
//     NCCL's tuning takes (sim/collective/nccl_tuning.h), and of transports whose steps were
//     measured the faster, a tree taking 2 S/(.92 B_node) even between two servers
//   all-to-all, N servers      max((g-1)/n S/B_intra, (n-g)/n S g/B_node)
//
//   Over servers each step takes longer by what GroupShape::steps says of its size: n-1 steps of
//   S/n (twice for an all-reduce), 2 floor(log2 N) of S in a tree, n-g of S/n in an all-to-all.
//
//   Domain: bandwidth-bound sizes; latencies are those of the hops only, without the launch of a
//   collective (tens of microseconds), which only a fitted law knows.
//   Source: NCCL, src/graph/tuning.cc (the choice, .92); Thakur et al., IJHPCA 19(1), 2005;
//   Sanders, Speck, Traeff, Parallel Computing 35, 2009 (two trees); the constants-free
//   multi-server form is within 5.0 % of 7 measured points on 5 clusters.
#include "sim/cost/closed_form.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {
namespace {

double seconds_per_byte(Share share, BytesPerSecond bandwidth) {
  TRAINYARD_CHECK(bandwidth.count() > 0, "a group without bandwidth between its ranks");
  return share.value() / bandwidth.count();
}

// What so many steps, each with the part of one rank, take beside hops and bytes.
Seconds rounds(std::int64_t steps, std::span<const StepTime> times, Bytes bytes,
               const GroupShape& shape) {
  const double part = static_cast<double>(bytes.count()) / shape.ranks;
  return static_cast<double>(steps) * step_time(times, part);
}

// What NCCL's tuning expects of a tree beside a ring.
constexpr double kTreeShare = 0.92;

// Of the two by which an all-reduce over servers may go, the one that NCCL takes. Where steps of
// the transport were measured they tell which is faster, by whatever the library knew of it.
std::optional<bool> takes_tree(Bytes bytes, const GroupShape& shape) {
  if (!shape.steps.empty()) return std::nullopt;
  for (const nccl::Choice& choice :
       nccl_choices(CollectiveKind::all_reduce, nullptr, bytes, shape)) {
    if (choice.method == nccl::Method::tree) return true;
    if (choice.method == nccl::Method::ring) return false;
  }
  return std::nullopt;
}

MessageTerms all_reduce_over_servers(Bytes bytes, const GroupShape& shape, const Inside& inside) {
  const int servers = shape.servers;
  const Share tree(servers == 2 ? 1 : 2, 1);
  const Share ring = wire_share(CollectiveKind::all_reduce, shape.ranks);
  const int levels = 2 * log2_floor(servers);
  const double size = static_cast<double>(bytes.count());
  const Seconds tree_hops =
      hops(levels, shape.inter_latency) + levels * step_time(shape.tree_steps, size);
  const Seconds ring_hops =
      hops(ring_steps(CollectiveKind::all_reduce, servers), shape.inter_latency) +
      rounds(ring_steps(CollectiveKind::all_reduce, shape.ranks), shape.steps, bytes, shape);
  const auto between = [&](Share share) { return seconds_per_byte(share, shape.inter_bandwidth); };
  if (inside.in_switch)
    return make_terms(inside.latency + tree_hops,
                      std::max(inside.per_byte, between(tree)) / kTreeShare, tree, bytes,
                      Basis::analytic);
  const bool is_tree = takes_tree(bytes, shape)
                           .value_or(tree_hops + Seconds(size * between(Share(2, 1)) / kTreeShare) <
                                     ring_hops + Seconds(size * between(ring)));
  return make_terms(inside.latency + (is_tree ? tree_hops : ring_hops),
                    std::max(inside.per_byte, between(is_tree ? tree : ring)),
                    is_tree ? tree : ring, bytes, Basis::analytic);
}

MessageTerms all_to_all_over_servers(Bytes bytes, const GroupShape& shape, const Inside& inside) {
  const int away = shape.ranks - shape.ranks_per_server;
  const Share share(away, shape.ranks);
  const BytesPerSecond per_rank =
      shape.exchange_efficiency * shape.inter_bandwidth / shape.ranks_per_server;
  return make_terms(inside.latency + hops(away, shape.inter_latency) +
                        rounds(away, shape.exchange_steps, bytes, shape),
                    std::max(inside.per_byte, seconds_per_byte(share, per_rank)), share, bytes,
                    Basis::analytic);
}

class ClosedFormMessages final : public MessageCost {
 public:
  MessageTerms collective(CollectiveKind kind, Bytes bytes,
                          const GroupShape& shape) const override {
    TRAINYARD_CHECK(bytes.count() >= 0, "a collective of {} bytes", bytes.count());
    TRAINYARD_CHECK(shape.ranks >= 1, "a group of {} ranks", shape.ranks);
    if (shape.ranks == 1) return nothing();
    if (shape.servers == 1) return on_one_server(kind, bytes, shape);
    return over_servers(kind, bytes, shape, inside_servers(kind, shape));
  }

  MessageTerms point_to_point(Bytes bytes, const GroupShape& shape) const override {
    return between_two(bytes, shape);
  }
};

}  // namespace

std::int64_t ring_steps(CollectiveKind kind, std::int64_t ranks) {
  if (kind == CollectiveKind::shift) return 1;
  return (kind == CollectiveKind::all_reduce ? 2 : 1) * (ranks - 1);
}

Share in_switch_share(int ranks) {
  return Share(std::int64_t{ranks} + 1, ranks);
}

BytesPerSecond inside_bandwidth(CollectiveKind kind, const GroupShape& shape) {
  const bool exchange = kind == CollectiveKind::all_to_all;
  return (exchange ? shape.inside_exchange : 1) * shape.intra_bandwidth;
}

Seconds hops(std::int64_t count, Duration each) {
  return static_cast<double>(count) * std::chrono::duration_cast<Seconds>(each);
}

int log2_floor(int value) {
  TRAINYARD_CHECK(value >= 1, "logarithm of {}", value);
  int log = 0;
  while (value >>= 1)
    ++log;
  return log;
}

MessageTerms make_terms(Seconds latency, double per_byte, Share share, Bytes bytes, Basis basis) {
  TRAINYARD_CHECK(share.numerator() > 0, "a share of nothing");
  TRAINYARD_CHECK(per_byte > 0, "{} s per byte", per_byte);
  MessageTerms terms;
  terms.latency = latency;
  terms.basis = basis;
  terms.wire_bytes = share.of(bytes);
  // The rate at which the (rounded up) wire bytes take exactly the linear time.
  const double wire = static_cast<double>(terms.wire_bytes.count());
  const double linear = per_byte * static_cast<double>(bytes.count());
  terms.bandwidth = BytesPerSecond(wire > 0 ? wire / linear : share.value() / per_byte);
  return terms;
}

MessageTerms nothing() {
  MessageTerms terms;
  terms.bandwidth = BytesPerSecond(1);  // of no bytes: a divisor
  return terms;
}

MessageTerms on_one_server(CollectiveKind kind, Bytes bytes, const GroupShape& shape) {
  TRAINYARD_CHECK(shape.ranks >= 2, "a group of {} ranks", shape.ranks);
  const Share share = wire_share(kind, shape.ranks);
  return make_terms(hops(ring_steps(kind, shape.ranks), shape.intra_latency),
                    seconds_per_byte(share, inside_bandwidth(kind, shape)), share, bytes,
                    Basis::analytic);
}

Inside inside_servers(CollectiveKind kind, const GroupShape& shape) {
  const int local = shape.ranks_per_server;
  TRAINYARD_CHECK(shape.servers >= 2, "a group inside one server");
  TRAINYARD_CHECK(local >= 1, "a server with {} ranks of its group", local);
  if (local == 1) return {};
  const auto inside = [&](std::int64_t steps, Share share) {
    return Inside{hops(steps, shape.intra_latency),
                  seconds_per_byte(share, inside_bandwidth(kind, shape))};
  };
  switch (kind) {
    case CollectiveKind::all_reduce: return inside(2 * (local - 1), wire_share(kind, local));
    case CollectiveKind::all_to_all: return inside(local - 1, Share(local - 1, shape.ranks));
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::broadcast:
      // One ring through all servers: its edges inside carry as much as those between.
      return inside(shape.ranks - shape.servers, wire_share(kind, shape.ranks));
    case CollectiveKind::shift:
      // The slowest hop is the one between servers; those inside pass at the same time.
      return {Seconds{}, seconds_per_byte(wire_share(kind, shape.ranks), shape.intra_bandwidth)};
  }
  return {};
}

MessageTerms over_servers(CollectiveKind kind, Bytes bytes, const GroupShape& shape,
                          Inside inside) {
  if (shape.start) inside.latency = std::chrono::duration_cast<Seconds>(*shape.start);
  if (kind == CollectiveKind::all_reduce) return all_reduce_over_servers(bytes, shape, inside);
  if (kind == CollectiveKind::all_to_all) return all_to_all_over_servers(bytes, shape, inside);
  const Share share = wire_share(kind, shape.ranks);
  const int between = kind == CollectiveKind::shift ? 1 : shape.servers - 1;
  const std::int64_t steps = ring_steps(kind, shape.ranks);
  return make_terms(inside.latency + hops(between, shape.inter_latency) +
                        rounds(steps, shape.steps, bytes, shape),
                    std::max(inside.per_byte, seconds_per_byte(share, shape.inter_bandwidth)),
                    share, bytes, Basis::analytic);
}

MessageTerms between_two(Bytes bytes, const GroupShape& shape) {
  TRAINYARD_CHECK(bytes.count() >= 0, "a message of {} bytes", bytes.count());
  const bool near = shape.servers == 1;
  const BytesPerSecond bandwidth = near ? shape.intra_bandwidth : shape.inter_bandwidth;
  return make_terms(hops(1, near ? shape.intra_latency : shape.inter_latency),
                    seconds_per_byte(Share(1, 1), bandwidth), Share(1, 1), bytes, Basis::analytic);
}

std::unique_ptr<MessageCost> closed_form_message_cost() {
  return std::make_unique<ClosedFormMessages>();
}

}  // namespace trainyard::cost
