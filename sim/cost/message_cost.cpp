// Message times by the laws of a profile, T(S) = a + S/B + c sqrt(S / 1 MB).
//
// For a group without a law of its own, in this order:
//   another group size of the same kind and number of servers: the linear part by the bytes on the
//   wire,
//     c by their square root, a as it is;
//   all-gather and reduce-scatter: each other's law, or half of the ring all-reduce, which is one
//     after the other, whichever is of the nearest number of ranks;
//   broadcast, all-to-all:
//     the same, by their bytes on the wire;
//   several servers: the law of one server inside, the closed form between (closed_form.cpp);
//   shift: the law of a message between two ranks;
//   otherwise the closed form.
//   Without a law of the kind itself, and below the sizes of one, the latency is at least that of
//   starting a collective, where the profile knows it.
//
//   Domain: the sizes of the law, beyond which it is extrapolated; anything derived from a law by
//   these rules is analytic.
//   Invariant: never faster than the shape's bandwidth inside one server.
//   Source: docs/cost-messages.md; the constants: configs/profiles/*.json.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>

#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "sim/cost/closed_form.h"
#include "sim/cost/extrapolation.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {
namespace {

// What the sizes of a law add to terms that follow it to the letter.
template <class Law>
void check_domain(const Law& law, Bytes bytes, MessageTerms& terms) {
  if (terms.basis == Basis::analytic) return;  // a rule was used, or the links are slower
  Reach reach = reach_of(law.from);
  reach.check(bytes, law.least, law.most);
  terms.basis = reach.basis;
  terms.reach = std::move(reach.why);
}

// Kinds whose law may price `kind`, its own before others at the same number of ranks.
std::span<const CollectiveKind> stand_ins(CollectiveKind kind) {
  using enum CollectiveKind;
  static constexpr std::array kReduce = {all_reduce};
  static constexpr std::array kGather = {all_gather, reduce_scatter, all_reduce};
  static constexpr std::array kScatter = {reduce_scatter, all_gather, all_reduce};
  static constexpr std::array kBroadcast = {broadcast, all_gather, reduce_scatter, all_reduce};
  static constexpr std::array kExchange = {all_to_all, all_gather, reduce_scatter, all_reduce};
  switch (kind) {
    case all_reduce: return kReduce;
    case all_gather: return kGather;
    case reduce_scatter: return kScatter;
    case broadcast: return kBroadcast;
    case all_to_all: return kExchange;
    case shift: break;
  }
  return {};
}

// A law brought to a group size: T = start + per_byte S + per_root sqrt(S / 1 MB).
struct Rescaled {
  Seconds start{};
  double per_byte = 0;
  Seconds per_root{};
  Share share;
  Basis basis = Basis::analytic;

  Seconds latency(Bytes bytes) const {
    return start + std::sqrt(static_cast<double>(bytes.count()) / 1e6) * per_root;
  }
};

Share share_of(const CollectiveLaw& law, int ranks) {
  return law.in_switch ? in_switch_share(ranks) : wire_share(law.kind, ranks);
}

Rescaled rescale(const CollectiveLaw& law, CollectiveKind kind, int ranks) {
  const double wire_ratio = share_of(law, ranks).value() / share_of(law, law.ranks).value();
  Rescaled to;
  to.start = law.start;
  to.per_byte = wire_ratio / law.bandwidth.count();
  to.per_root = std::sqrt(wire_ratio) * law.per_sqrt_MB;
  to.share = share_of(law, ranks);
  to.basis = ranks == law.ranks ? law.from.basis : Basis::analytic;
  if (kind != law.kind) {
    const double rounds =
        wire_share(kind, ranks).value() / to.share.value();  // half; broadcast more
    if (law.kind == CollectiveKind::all_reduce) to.start /= 2;
    to.per_byte *= rounds;
    to.per_root *= rounds;
    to.share = wire_share(kind, ranks);
    to.basis = Basis::analytic;
  }
  return to;
}

// No law is of faster links than the server at hand has.
double least_per_byte(CollectiveKind kind, const GroupShape& shape, Share share) {
  return share.value() / inside_bandwidth(kind, shape).count();
}

class FittedMessages final : public MessageCost {
 public:
  explicit FittedMessages(const Profile& profile)
      : profile_(profile), closed_form_(closed_form_message_cost()) {}

  MessageTerms collective(CollectiveKind kind, Bytes bytes,
                          const GroupShape& shape) const override {
    TRAINYARD_CHECK(bytes.count() >= 0, "a collective of {} bytes", bytes.count());
    TRAINYARD_CHECK(shape.ranks >= 1, "a group of {} ranks", shape.ranks);
    if (shape.ranks == 1) return nothing();
    if (kind == CollectiveKind::shift) return shift(bytes, shape);
    MessageTerms terms = collective_alone(kind, bytes, shape);
    const CollectiveLaw* own = nearest_law(kind, shape.ranks, shape.servers);
    if (own == nullptr || bytes < own->least) hold_to_start(kind, shape, terms);
    terms.channels = channels_of(kind, bytes, shape);
    return terms;
  }

  MessageTerms point_to_point(Bytes bytes, const GroupShape& shape) const override {
    MessageTerms terms = closed_form_->point_to_point(bytes, shape);
    for (const PointToPointLaw& law : profile_.point_to_point) {
      if (law.same_server != (shape.servers == 1)) continue;
      const BytesPerSecond most = law.same_server ? shape.intra_bandwidth : shape.inter_bandwidth;
      const bool slowed = most < law.bandwidth;
      terms = make_terms(law.start, 1 / std::min(most, law.bandwidth).count(), Share(1, 1), bytes,
                         slowed ? Basis::analytic : law.from.basis);
      check_domain(law, bytes, terms);
      break;
    }
    terms.channels = shape.by_kernels ? profile_.point_to_point_channels : 0;
    return terms;
  }

 private:
  MessageTerms shift(Bytes bytes, const GroupShape& shape) const;
  MessageTerms collective_alone(CollectiveKind kind, Bytes bytes, const GroupShape& shape) const;

  // Fewer for a small buffer.
  int channels_of(CollectiveKind kind, Bytes bytes, const GroupShape& shape) const {
    const int most = profile_.collective_channels;
    if (!shape.nccl || most == 0) return most;
    GroupShape known = shape;
    known.nccl->channels = most;
    const std::vector<nccl::Choice> choices = nccl_choices(kind, nullptr, bytes, known);
    return choices.empty() ? most : std::min(most, choices.front().channels);
  }

  // A collective over servers takes the steps inside one at the least.
  void hold_to_start(CollectiveKind kind, const GroupShape& shape, MessageTerms& terms) const {
    if (!profile_.collective_start || shape.start) return;
    const int inside = shape.servers == 1 ? shape.ranks : shape.ranks_per_server;
    const CollectiveStart& least = *profile_.collective_start;
    terms.latency =
        std::max(terms.latency,
                 least.start + static_cast<double>(ring_steps(kind, inside)) * least.per_step);
  }

  // Laws are of the library's own choice; of another algorithm a profile knows what starting one
  // costs.
  void add_start(const GroupShape& shape, MessageTerms& terms) const override {
    if (shape.start)
      terms.latency += std::chrono::duration_cast<Seconds>(*shape.start);
    else if (profile_.collective_start)
      terms.latency += profile_.collective_start->start;
    terms.channels = profile_.collective_channels;
  }

  // The law of `kind` on `servers` servers with the nearest number of ranks (the larger of two).
  const CollectiveLaw* nearest_law(CollectiveKind kind, int ranks, int servers) const {
    const CollectiveLaw* best = nullptr;
    for (const CollectiveLaw& law : profile_.collectives) {
      if (law.kind != kind || law.servers != servers) continue;
      const auto distance = [ranks](const CollectiveLaw& l) { return std::abs(l.ranks - ranks); };
      if (!best || distance(law) < distance(*best) ||
          (distance(law) == distance(*best) && law.ranks > best->ranks)) {
        best = &law;
      }
    }
    return best;
  }

  // The law that prices `kind`: of the nearest number of ranks its own, or one that stands in.
  const CollectiveLaw* law_for(CollectiveKind kind, int ranks, int servers) const {
    const CollectiveLaw* best = nullptr;
    for (const CollectiveKind other : stand_ins(kind)) {
      const CollectiveLaw* law = nearest_law(other, ranks, servers);
      if (law == nullptr || (other != kind && law->in_switch)) continue;
      if (best == nullptr || std::abs(law->ranks - ranks) < std::abs(best->ranks - ranks))
        best = law;
    }
    return best;
  }

  Profile profile_;
  std::unique_ptr<MessageCost> closed_form_;
};

// The inside of a multi-server collective by the law of one server. With one rank per server
// nothing moves inside, but starting the collective costs the same.
Inside inside_by_law(const CollectiveLaw& law, CollectiveKind kind, Bytes bytes,
                     const GroupShape& shape) {
  const int local = shape.ranks_per_server;
  if (local == 1) return {rescale(law, kind, law.ranks).latency(bytes), 0};
  Rescaled inside = rescale(law, kind, local);
  inside.per_byte = std::max(inside.per_byte, least_per_byte(kind, shape, inside.share));
  if (kind == CollectiveKind::all_to_all) {  // what stays inside
    const double part = static_cast<double>(local) / shape.ranks;
    return {inside.latency(Bytes(divide_up(bytes.count() * local, shape.ranks))),
            inside.per_byte * part};
  }
  // An all-reduce reduces inside first; the one ring of the others carries (n-1)/n everywhere.
  const double through = kind == CollectiveKind::all_reduce
                             ? 1
                             : wire_share(kind, shape.ranks).value() / inside.share.value();
  return {inside.latency(bytes), inside.per_byte * through, law.in_switch};
}

MessageTerms FittedMessages::collective_alone(CollectiveKind kind, Bytes bytes,
                                              const GroupShape& shape) const {
  if (const CollectiveLaw* law = law_for(kind, shape.ranks, shape.servers)) {
    Rescaled to = rescale(*law, kind, shape.ranks);
    const double least = least_per_byte(kind, shape, to.share);
    if (shape.servers == 1 && to.per_byte < least) {
      to.per_byte = least;
      to.basis = Basis::analytic;
    }
    MessageTerms terms = make_terms(to.latency(bytes), to.per_byte, to.share, bytes, to.basis);
    check_domain(*law, bytes, terms);
    return terms;
  }
  const CollectiveLaw* law = law_for(kind, shape.ranks_per_server, 1);
  if (shape.servers == 1 || !law) return closed_form_->collective(kind, bytes, shape);
  return over_servers(kind, bytes, shape, inside_by_law(*law, kind, bytes, shape));
}

// One step round a ring is as slow as its slowest message.
MessageTerms FittedMessages::shift(Bytes bytes, const GroupShape& shape) const {
  const Bytes own(divide_up(bytes.count(), shape.ranks));
  return point_to_point(own, shape);
}

}  // namespace

namespace {

class MessagesByKind final : public MessageCost {
 public:
  explicit MessagesByKind(std::vector<std::unique_ptr<MessageCost>> costs)
      : costs_(std::move(costs)) {}

  MessageTerms collective(CollectiveKind kind, const collective::Choice& choice, Bytes bytes,
                          const GroupShape& shape) const override {
    return of(shape).collective(kind, choice, bytes, shape);
  }
  MessageTerms collective(CollectiveKind kind, Bytes bytes,
                          const GroupShape& shape) const override {
    return of(shape).collective(kind, bytes, shape);
  }
  MessageTerms point_to_point(Bytes bytes, const GroupShape& shape) const override {
    return of(shape).point_to_point(bytes, shape);
  }

 private:
  const MessageCost& of(const GroupShape& shape) const {
    return *costs_.at(static_cast<std::size_t>(shape.gpu_kind));
  }

  std::vector<std::unique_ptr<MessageCost>> costs_;
};

}  // namespace

std::unique_ptr<MessageCost> message_cost_by_kind(std::vector<std::unique_ptr<MessageCost>> costs) {
  return std::make_unique<MessagesByKind>(std::move(costs));
}

std::unique_ptr<MessageCost> fitted_message_cost(const Profile& profile) {
  return std::make_unique<FittedMessages>(profile);
}

}  // namespace trainyard::cost
