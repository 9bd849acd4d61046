// Laws for a GPU that nobody has measured, from those of its kind. What a law says in shares of
// datasheet peaks carries over to another GPU; what starting a kernel costs does, too. Tables of
// shapes and fitted ranges do not.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sim/base/check.h"
#include "sim/cost/borrowed/median.h"
#include "sim/cost/compute_laws.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {
namespace {

double number(double value) {
  return value;
}
double number(Seconds value) {
  return value.count();
}
template <class Tag>
double number(Quantity<Tag, double> value) {
  return value.count();
}

// A law and the name of the GPU it was fitted on.
template <class Law>
struct Fitted {
  Law law;
  std::string gpu;
};

template <class Law>
using Group = std::vector<Fitted<Law>>;

// Sets a member to the median over the group.
template <class Law, class Number>
void take_median(Law& result, const Group<Law>& group, Number Law::*member) {
  std::vector<double> values;
  for (const Fitted<Law>& fitted : group)
    values.push_back(number(fitted.law.*member));
  result.*member = Number(median(std::move(values)));
}

// The same of those laws that have it.
template <class Law, class Number>
void take_median(Law& result, const Group<Law>& group, std::optional<Number> Law::*member) {
  std::vector<double> values;
  for (const Fitted<Law>& fitted : group)
    if (fitted.law.*member) values.push_back(number(*(fitted.law.*member)));
  result.*member = values.empty() ? std::nullopt : std::optional(Number(median(values)));
}

std::string names_of(const std::vector<std::string>& gpus) {
  return fmt::format("{}", fmt::join(gpus, ", "));
}

struct Origin {
  Provenance from;
  std::string gpu;
};

Provenance merged(const std::vector<Origin>& origins) {
  std::vector<std::string> gpus, sources;
  Provenance result;
  result.basis = Basis::extrapolated;
  for (const Origin& origin : origins) {
    gpus.push_back(origin.gpu);
    if (std::find(sources.begin(), sources.end(), origin.from.source) == sources.end())
      sources.push_back(origin.from.source);
    result.basis = weaker(result.basis, origin.from.basis);
    result.date = std::max(result.date, origin.from.date);
  }
  result.source = fmt::format("{}", fmt::join(sources, "; "));
  result.machine = names_of(gpus);
  result.samples = fmt::format("median of {} fitted GPU{} of the kind, in shares of their peaks",
                               gpus.size(), gpus.size() == 1 ? "" : "s");
  result.residual = "unknown on this GPU";
  return result;
}

template <class Law>
Provenance merged(const Group<Law>& group) {
  std::vector<Origin> origins;
  for (const Fitted<Law>& fitted : group)
    origins.push_back({fitted.law.from, fitted.gpu});
  return merged(origins);
}

// The laws of all kin, those of the same `key` together, in the order of their first.
template <class Law, class Key>
std::vector<Group<Law>> grouped(const std::vector<Kin>& kin, std::vector<Law> Profile::*laws,
                                Key key) {
  std::vector<Group<Law>> groups;
  for (const Kin& one : kin) {
    for (const Law& law : one.profile.*laws) {
      auto at = std::find_if(groups.begin(), groups.end(), [&](const Group<Law>& group) {
        return key(group.front().law) == key(law);
      });
      if (at == groups.end()) at = groups.insert(at, Group<Law>());
      at->push_back({law, one.profile.gpu});
    }
  }
  return groups;
}

// Nothing where not every law of the group counts in tiles.
std::optional<GemmTiles> median_tiles(const Group<GemmLaw>& group) {
  std::vector<double> multiprocessors, half, smaller, prologue;
  for (const Fitted<GemmLaw>& fitted : group) {
    if (!fitted.law.tiles) return std::nullopt;
    multiprocessors.push_back(fitted.law.tiles->multiprocessors);
    half.push_back(fitted.law.tiles->half);
    smaller.push_back(fitted.law.tiles->smaller);
    prologue.push_back(fitted.law.tiles->prologue);
  }
  return GemmTiles{static_cast<int>(median(multiprocessors)), median(half), median(smaller),
                   median(prologue)};
}

// Kernels are of the library and the compute capability; nothing where not every law says it.
std::optional<GemmUnaligned> median_unaligned(const Group<GemmLaw>& group) {
  std::vector<double> of_2, of_4, of_8;
  for (const Fitted<GemmLaw>& fitted : group) {
    if (!fitted.law.unaligned) return std::nullopt;
    of_2.push_back(fitted.law.unaligned->bytes_2);
    of_4.push_back(fitted.law.unaligned->bytes_4);
    of_8.push_back(fitted.law.unaligned->bytes_8);
  }
  GemmUnaligned middle{median(of_2), median(of_4), median(of_8), group.front().law.unaligned->from};
  middle.from.basis = Basis::extrapolated;
  return middle;
}

void add_kernels(Profile& result, const std::vector<Kin>& kin) {
  for (const auto& group : grouped(kin, &Profile::gemm, [](const GemmLaw& l) { return l.dtype; })) {
    GemmLaw law;
    law.dtype = group.front().law.dtype;
    take_median(law, group, &GemmLaw::fixed);
    take_median(law, group, &GemmLaw::compute_efficiency);
    take_median(law, group, &GemmLaw::memory_efficiency);
    take_median(law, group, &GemmLaw::exponent);
    take_median(law, group, &GemmLaw::short_run);
    law.tiles = median_tiles(group);
    law.unaligned = median_unaligned(group);
    law.from = merged(group);
    result.gemm.push_back(std::move(law));
  }
  const auto attention_key = [](const AttentionLaw& law) {
    return std::tuple(law.kernel, law.dtype, law.head_size, law.causal);
  };
  for (const auto& group : grouped(kin, &Profile::attention, attention_key)) {
    AttentionLaw law;
    std::tie(law.kernel, law.dtype, law.head_size, law.causal) = attention_key(group.front().law);
    take_median(law, group, &AttentionLaw::forward_fixed);
    take_median(law, group, &AttentionLaw::backward_fixed);
    take_median(law, group, &AttentionLaw::forward);
    take_median(law, group, &AttentionLaw::backward);
    take_median(law, group, &AttentionLaw::forward_keys);
    take_median(law, group, &AttentionLaw::backward_keys);
    law.from = merged(group);
    result.attention.push_back(std::move(law));
  }
  for (auto& group :
       grouped(kin, &Profile::convolution, [](const ConvolutionLaw& l) { return l.dtype; })) {
    // Factors with another use of Winograd's algorithm are of something else.
    group.erase(std::remove_if(group.begin(), group.end(),
                               [use = group.front().law.winograd](const auto& fitted) {
                                 return fitted.law.winograd != use;
                               }),
                group.end());
    ConvolutionLaw law;
    law.dtype = group.front().law.dtype;
    for (const auto member :
         {&ConvolutionLaw::efficiency, &ConvolutionLaw::kernel_3x3, &ConvolutionLaw::few_channels,
          &ConvolutionLaw::data_gradient, &ConvolutionLaw::weight_gradient,
          &ConvolutionLaw::strided_data_gradient, &ConvolutionLaw::half_rate_tiles})
      take_median(law, group, member);
    law.channels_first = group.front().law.channels_first;
    law.winograd = group.front().law.winograd;
    law.from = merged(group);
    result.convolution.push_back(std::move(law));
  }
  for (const auto& group :
       grouped(kin, &Profile::memory, [](const MemoryLaw& l) { return l.op; })) {
    MemoryLaw law;
    law.op = group.front().law.op;
    take_median(law, group, &MemoryLaw::fixed);
    take_median(law, group, &MemoryLaw::efficiency);
    take_median(law, group, &MemoryLaw::backward_efficiency);
    take_median(law, group, &MemoryLaw::l2_speedup);
    take_median(law, group, &MemoryLaw::element_rate);
    law.from = merged(group);
    result.memory.push_back(std::move(law));
  }
}

// Kin whose laws of links are in shares of `link`: as fast as theirs, times the ratio.
std::vector<Kin> brought_to(BytesPerSecond link, const std::vector<Kin>& kin) {
  std::vector<Kin> result;
  for (const Kin& one : kin) {
    if (link.count() <= 0 || one.link.count() <= 0) continue;
    Kin scaled = one;
    const double ratio = link.count() / one.link.count();
    std::erase_if(scaled.profile.collectives, [](const CollectiveLaw& l) { return l.servers > 1; });
    for (CollectiveLaw& law : scaled.profile.collectives)
      law.bandwidth = ratio * law.bandwidth;
    std::erase_if(scaled.profile.point_to_point,
                  [](const PointToPointLaw& l) { return !l.same_server; });
    for (PointToPointLaw& law : scaled.profile.point_to_point)
      law.bandwidth = ratio * law.bandwidth;
    result.push_back(std::move(scaled));
  }
  return result;
}

// Kin whose arithmetic is as fast as the GPU's power lets it be; convolutions are in shares of
// products.
std::vector<Kin> at_power(std::vector<Kin> kin) {
  for (Kin& one : kin) {
    for (GemmLaw& law : one.profile.gemm)
      law.compute_efficiency *= one.arithmetic;
    for (AttentionLaw& law : one.profile.attention) {
      law.forward *= one.arithmetic;
      law.backward *= one.arithmetic;
    }
  }
  return kin;
}

void add_links(Profile& result, const std::vector<Kin>& kin) {
  const auto collective_key = [](const CollectiveLaw& law) {
    return std::tuple(law.kind, law.ranks, law.in_switch);
  };
  for (const auto& group : grouped(kin, &Profile::collectives, collective_key)) {
    CollectiveLaw law;
    std::tie(law.kind, law.ranks, law.in_switch) = collective_key(group.front().law);
    take_median(law, group, &CollectiveLaw::start);
    take_median(law, group, &CollectiveLaw::bandwidth);
    take_median(law, group, &CollectiveLaw::per_sqrt_MB);
    law.from = merged(group);
    result.collectives.push_back(std::move(law));
  }
  for (const auto& group : grouped(kin, &Profile::point_to_point,
                                   [](const PointToPointLaw& law) { return law.same_server; })) {
    PointToPointLaw law;
    law.same_server = group.front().law.same_server;
    take_median(law, group, &PointToPointLaw::start);
    take_median(law, group, &PointToPointLaw::bandwidth);
    law.from = merged(group);
    result.point_to_point.push_back(std::move(law));
  }
}

// A number of the whole profile: the median over those kin that say where theirs is from.
template <class Number>
void take_median(Profile& result, const std::vector<Kin>& kin, Number Profile::*member,
                 Provenance Profile::*from) {
  std::vector<double> values;
  std::vector<Origin> origins;
  for (const Kin& one : kin) {
    if ((one.profile.*from).source.empty()) continue;
    values.push_back(number(one.profile.*member));
    origins.push_back({one.profile.*from, one.profile.gpu});
  }
  if (values.empty()) return;
  result.*member = Number(median(std::move(values)));
  result.*from = merged(origins);
}

// A law of the whole profile: the medians over those kin that have one like the first of them.
template <class Law, class Alike, class... Members>
void take_law(Profile& result, const std::vector<Kin>& kin, std::optional<Law> Profile::*law,
              Alike alike, Members... members) {
  Group<Law> group;
  for (const Kin& one : kin) {
    const std::optional<Law>& own = one.profile.*law;
    if (own && (group.empty() || alike(group.front().law, *own)))
      group.push_back({*own, one.profile.gpu});
  }
  if (group.empty()) return;
  Law taken = group.front().law;
  (take_median(taken, group, members), ...);
  taken.from = merged(group);
  result.*law = std::move(taken);
}

void take_grouped(Profile& result, const std::vector<Kin>& kin) {
  const auto always = [](const GroupedGemmLaw&, const GroupedGemmLaw&) { return true; };
  take_law(result, kin, &Profile::grouped_gemm, always, &GroupedGemmLaw::rows,
           &GroupedGemmLaw::weight_rows);
}

void take_dropout(Profile& result, const std::vector<Kin>& kin) {
  const auto of_one_kernel = [](const AttentionDropoutLaw& a, const AttentionDropoutLaw& b) {
    return a.kernel == b.kernel;
  };
  take_law(result, kin, &Profile::attention_dropout, of_one_kernel, &AttentionDropoutLaw::forward,
           &AttentionDropoutLaw::backward);
}

}  // namespace

double share_at_power(const Profile& profile, Watts busy, double peaks) {
  if (!profile.settled_power || busy.count() <= 0) return 1;
  const double power = busy.count() / profile.settled_power->count();
  return power < 1 ? std::min(1.0, clock_under(power) * peaks) : 1;
}

void keep_tiles_of(Profile& profile, int multiprocessors) {
  for (GemmLaw& law : profile.gemm)
    if (law.tiles && law.tiles->multiprocessors != multiprocessors) law.tiles.reset();
}

Profile median_profile(const std::vector<Kin>& kin, BytesPerSecond link) {
  TRAINYARD_CHECK(!kin.empty(), "a median of no profiles");
  std::vector<std::string> gpus;
  for (const Kin& one : kin)
    gpus.push_back(one.profile.gpu);
  Profile result;
  result.name = fmt::format("medians of {}", names_of(gpus));
  add_kernels(result, at_power(kin));
  add_links(result, brought_to(link, kin));
  take_median(result, kin, &Profile::batched_gemm_efficiency, &Profile::batched_gemm_from);
  take_grouped(result, kin);
  take_dropout(result, kin);
  take_median(result, kin, &Profile::collective_channels, &Profile::channels_from);
  take_median(result, kin, &Profile::point_to_point_channels, &Profile::channels_from);
  take_median(result, kin, &Profile::launch, &Profile::launch_from);
  return result;
}

}  // namespace trainyard::cost
