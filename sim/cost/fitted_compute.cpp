// Kernel times by the laws of a profile.
//
//   GEMM         T = r (t0 + (X^p + Y^p)^(1/p)), X = flops / (e P), Y = bytes / (u W); with tiles
//                e is that of the shape
//   attention    T = t0 + flops / (e_fa P)
//   convolution  r times the GEMM law with factors on e
//   memory       T = fixed + max(bytes / (m W), numbers one by one / (rate P32))
//
//   r is the residual of a measured shape, that of its neighbours, or 1.
//   Domain: the sizes that a law says it was fitted on; beyond them, for another type and for
//   another kind of kernel the estimate is extrapolated and says so, and a kernel without any law
//   is priced by the roofline.
//   Source: docs/cost-gemm.md, docs/cost-attention.md, docs/cost-convolution.md,
//   docs/cost-memory-bound.md; the constants: configs/profiles/*.json.
#include <fmt/format.h>

#include <limits>
#include <optional>
#include <variant>

#include "models/layer/peak.h"
#include "sim/base/check.h"
#include "sim/cost/compute_laws.h"
#include "sim/cost/extrapolation.h"
#include "sim/cost/profile.h"
#include "sim/cost/residuals.h"

namespace trainyard::cost {

using models::Attention;
using models::AttentionKernel;
using models::Convolution;
using models::ConvolutionPass;
using models::Dtype;

namespace {

// How far apart two rates are, as the ratio of the larger to the smaller.
double apart(FlopsPerSecond a, FlopsPerSecond b) {
  return std::max(a, b).count() / std::min(a, b).count();
}

template <class Law>
struct Chosen {
  const Law* law = nullptr;
  std::size_t index = 0;
  bool same_unit = false;     // fitted on the unit that runs the kernel
  bool tensor_cores = false;  // neither the unit nor the law is of fp32
  Reach reach;
};

// The law of the unit that runs `dtype`: its own, else that of the other 16-bit type (the units are
// the same), else that of the type whose peak is nearest, of those on the same cores if there are
// any; a type that this GPU has not comes last.
template <class Law>
Chosen<Law> choose(const std::vector<Law>& laws, Dtype dtype, const MachinePeaks& peaks) {
  const Dtype unit = unit_for(peaks, dtype);
  const auto rank = [&](const Law& law) {
    if (law.dtype == unit) return 0.0;
    if (is_half(law.dtype) && is_half(unit)) return 0.5;
    const std::optional<Dtype> of_law = models::find_unit(peaks, law.dtype);
    if (!of_law) return std::numeric_limits<double>::infinity();
    // CUDA cores reach other shares of their peak than tensor cores do.
    constexpr double kOtherCores = 1e6;
    const bool other_cores = (law.dtype == Dtype::fp32) != (unit == Dtype::fp32);
    return apart(peak(peaks, *of_law), peak(peaks, unit)) * (other_cores ? kOtherCores : 1);
  };
  Chosen<Law> best;
  for (std::size_t i = 0; i < laws.size(); ++i) {
    if (!best.law || rank(laws[i]) < rank(*best.law)) best = {&laws[i], i, false, false, {}};
  }
  if (!best.law) return best;
  best.same_unit = rank(*best.law) < 1;
  best.tensor_cores = unit != Dtype::fp32 && best.law->dtype != Dtype::fp32;
  best.reach = reach_of(best.law->from);
  if (!best.same_unit || unit != dtype) {
    best.reach.beyond(
        fmt::format("no law of {}, that of {} instead", name(dtype), name(best.law->dtype)));
  }
  return best;
}

class FittedCompute final : public ComputeCost {
 public:
  FittedCompute(const Profile& profile, const MachinePeaks& peaks)
      : profile_(profile), peaks_(peaks), roofline_(roofline_compute_cost(peaks)) {
    for (const GemmLaw& law : profile_.gemm)
      residuals_.emplace_back(law.residuals);
  }

  Estimate time(const models::Kernel& kernel) const override {
    Estimate estimate = std::visit([this](const auto& k) { return time_of(k); }, kernel);
    const bool slowed = peaks_.power < 1 && !std::holds_alternative<models::MemoryBound>(kernel) &&
                        !std::holds_alternative<models::Timed>(kernel);
    if (slowed && estimate.basis < Basis::extrapolated)
      return {estimate.time, Basis::extrapolated, "measured without the GPU's power limit"};
    return estimate;
  }

 private:
  Estimate time_of(const models::Gemm& gemm) const;
  Estimate time_of(const Attention& attention) const;
  Estimate time_of(const Convolution& convolution) const;
  Estimate time_of(const models::MemoryBound& kernel) const;
  Estimate time_of(const models::Timed& kernel) const { return roofline_->time(kernel); }

  // The GEMM law at an efficiency of its own choice; both rates at the given share of themselves.
  Seconds law_time(const GemmLaw& law, Dtype dtype, double efficiency, Flops work, Bytes bytes,
                   double share = 1) const {
    const FlopsPerSecond rate(efficiency * peak(peaks_, dtype).count());
    const BytesPerSecond stream(law.memory_efficiency * peaks_.memory_bandwidth.count());
    return law.fixed + p_norm({work / rate, bytes / stream}, law.exponent) / share;
  }

  // By Winograd's algorithm, its product by the law, what stands around it one after the other.
  std::optional<Seconds> in_tiles(const GemmLaw& law, const Convolution& convolution) const;

  // Of bytes that are read and written beside a kernel, of so many numbers in another order.
  Seconds permuted(Bytes moved, double numbers) const;
  // Of numbers that threads handle one by one; nothing where nobody measured how fast.
  Seconds one_by_one(const MemoryLaw& law, double numbers) const;
  Seconds in_layout(const Convolution& given, const ConvolutionLaw& law, Seconds time) const;

  // Copies to a head size that the kernel was compiled for, and back.
  Seconds alignment(const Attention& attention) const;
  std::optional<Seconds> drawing(const Attention& attention, const AttentionLaw& priced_by) const;

  Profile profile_;
  MachinePeaks peaks_;
  std::unique_ptr<ComputeCost> roofline_;
  std::vector<GemmResiduals> residuals_;  // by Profile::gemm
};

double share_of_rows(const GemmUnaligned& unaligned, const models::Gemm& gemm) {
  switch (models::row_alignment(gemm)) {
    case 1:
    case 2: return unaligned.bytes_2;
    case 4: return unaligned.bytes_4;
    case 8: return unaligned.bytes_8;
    default: return 1;
  }
}

// Over that of one product of all rows.
double time_of_groups(const GroupedGemmLaw& law, const models::Gemm& gemm) {
  const std::int64_t rows = std::max<std::int64_t>(1, gemm.over_rows ? gemm.k : gemm.m);
  return 1 + (gemm.over_rows ? law.weight_rows : law.rows) / static_cast<double>(rows);
}

// Over that of a product whose operands have one scale each.
std::optional<double> time_of_scaling(const GemmLaw& law, models::Scaling scaling) {
  switch (scaling) {
    case models::Scaling::tensor: return 1;
    case models::Scaling::row: return law.row_scaled;
    case models::Scaling::block: return law.block_scaled;
    case models::Scaling::micro: return law.micro_scaled;
  }
  TRAINYARD_CHECK(false, "scaling {}", static_cast<int>(scaling));
  return {};
}

Estimate FittedCompute::time_of(const models::Gemm& gemm) const {
  Chosen<GemmLaw> chosen = choose(profile_.gemm, gemm.dtype, peaks_);
  const GemmLaw* law = chosen.law;
  if (!law) return roofline_->time(gemm);
  Reach& reach = chosen.reach;
  const bool batched = gemm.batch > 1 && !gemm.grouped;
  const bool by_rows = gemm.grouped && profile_.grouped_gemm;
  const double experts = by_rows ? time_of_groups(*profile_.grouped_gemm, gemm) : 1;
  const double efficiency =
      law->compute_efficiency * (batched ? profile_.batched_gemm_efficiency : 1);
  // CUDA cores do not mind where rows begin.
  const bool minds_rows = law->unaligned && chosen.tensor_cores;
  const double rows = minds_rows ? share_of_rows(*law->unaligned, gemm) : 1;
  // Tiles are of the unit, as residuals are; batches have a share of their own.
  const bool tiled = law->tiles && chosen.same_unit && !batched;
  const double reached = tiled ? 1 / tiled_share(*law->tiles, gemm, efficiency) : efficiency;
  const std::optional<double> scaling = time_of_scaling(*law, gemm.scaling);
  if (!scaling)
    reach.beyond(fmt::format("no time of {}-scaled products, that of tensor-scaled ones instead",
                             name(gemm.scaling)));
  const Seconds time = scaling.value_or(1) * experts *
                       law_time(*law, gemm.dtype, reached, flops(gemm), memory_traffic(gemm), rows);
  const Residual residual = chosen.same_unit ? residuals_[chosen.index].at(gemm) : Residual{};
  if (residual.exact && law->dtype == gemm.dtype) return {residual.factor * time, Basis::measured};
  if (batched) reach.weaken(reach_of(profile_.batched_gemm_from));
  if (by_rows) reach.weaken(reach_of(profile_.grouped_gemm->from));
  if (rows < 1) reach.weaken(reach_of(law->unaligned->from));
  reach.check("m", gemm.m, law->m);
  reach.check("n", gemm.n, law->n);
  reach.check("k", gemm.k, law->k);
  return {residual.factor * time, reach.basis, reach.why};
}

// Forward, queries, keys, values and the output are copied; backward, their gradients, which are
// half of what it moves. Source: flash-attention's Python interface, docs/cost-attention.md.
Seconds FittedCompute::alignment(const Attention& attention) const {
  constexpr std::int64_t kAligned = 8;
  if (attention.head_size % kAligned == 0) return Seconds{};
  if (attention.kernel == AttentionKernel::sdpa_math) return Seconds{};
  const Bytes traffic = memory_traffic(attention);
  const Bytes copied = attention.backward ? Bytes(traffic.count() / 2) : traffic;
  return time_of(models::MemoryBound{models::MemoryOp::elementwise, copied, copied}).time;
}

// Of the random numbers that the kernel draws; nothing: nobody measured those of its kind.
std::optional<Seconds> FittedCompute::drawing(const Attention& attention,
                                              const AttentionLaw& priced_by) const {
  const std::optional<AttentionDropoutLaw>& law = profile_.attention_dropout;
  const bool is_usual = attention.kernel == AttentionKernel::usual;
  const std::optional<AttentionKernel> kernel = is_usual ? priced_by.kernel : attention.kernel;
  if (!law || kernel != law->kernel || peaks_.fp32.count() <= 0) return std::nullopt;
  const double numbers =
      visible_keys(attention) *
      static_cast<double>(attention.batch * attention.heads * attention.query_length);
  const double rate = attention.backward ? law->backward : law->forward;
  return Seconds(numbers / (rate * peaks_.fp32.count()));
}

// How far the kernel is from what its law was fitted on.
Reach attention_reach(const AttentionLaw& law, const Attention& attention) {
  Reach reach = reach_of(law.from);
  if (law.kernel && *law.kernel != attention.kernel && attention.kernel != AttentionKernel::usual)
    reach.beyond(
        fmt::format("no law of {}, that of {} instead", name(attention.kernel), name(*law.kernel)));
  if (law.head_size > 0 && law.head_size != attention.head_size)
    reach.beyond(fmt::format("no law of head size {}, that of {} instead", attention.head_size,
                             law.head_size));
  if (law.causal && *law.causal != attention.causal)
    reach.beyond(fmt::format("fitted on {} attention only", *law.causal ? "causal" : "full"));
  const bool in_chunks = attention.chunked && attention.window > 0;
  reach.check(
      "length",
      in_chunks ? std::min(attention.window, attention.query_length) : attention.query_length,
      law.length);
  return reach;
}

// Without an attention law the kernel is worth the batched GEMM that it fuses.
Estimate FittedCompute::time_of(const Attention& asked) const {
  Attention attention = asked;
  // A mask of plain operators hides scores that were computed.
  if (attention.kernel == AttentionKernel::sdpa_math) attention.window = 0;
  const Chosen<GemmLaw> gemm = choose(profile_.gemm, attention.dtype, peaks_);
  const AttentionLaw* law = attention_law(profile_, attention);
  if (!law && !gemm.law) return roofline_->time(attention);
  const FlopsPerSecond dense = peak(peaks_, attention.dtype);
  if (!law) {
    const double share = gemm.law->compute_efficiency * profile_.batched_gemm_efficiency;
    Reach reach = gemm.reach;
    reach.beyond("no law of attention, that of batched GEMMs instead");
    return {gemm.law->fixed + flops(attention) / FlopsPerSecond(share * dense.count()), reach.basis,
            reach.why};
  }
  const double share = attention.backward ? law->backward : law->forward;
  const Seconds start = (attention.backward ? law->backward_fixed : law->forward_fixed)
                            .value_or(gemm.law ? gemm.law->fixed : Seconds{});
  const Flops executed = executed_share(*law, attention) * flops(attention);
  Reach reach = attention_reach(*law, attention);
  Seconds drawing{};
  if (attention.dropout) {
    const std::optional<Seconds> known = this->drawing(attention, *law);
    drawing = known.value_or(Seconds{});
    if (known)
      reach.weaken(reach_of(profile_.attention_dropout->from));
    else
      reach.beyond("no law of dropout in it, which is taken to cost nothing");
  }
  return {start + executed / FlopsPerSecond(share * dense.count()) + alignment(attention) + drawing,
          reach.basis, reach.why};
}

double factor(const ConvolutionLaw& law, const Convolution& c) {
  double factor = law.efficiency;
  const bool has_few = c.in_channels / c.groups < 16;
  const bool lacks_it = law.winograd == WinogradUse::fused && strided(c) && !has_few;
  if (c.kernel_height == 3 && c.kernel_width == 3 && !lacks_it) factor *= law.kernel_3x3;
  if (has_few) factor *= law.few_channels;
  switch (c.pass) {
    case ConvolutionPass::forward: break;
    case ConvolutionPass::data_gradient:
      factor *= law.data_gradient * (strided(c) ? law.strided_data_gradient : 1);
      break;
    case ConvolutionPass::weight_gradient: factor *= law.weight_gradient; break;
  }
  return factor;
}

Estimate FittedCompute::time_of(const Convolution& given) const {
  Convolution convolution = given;
  convolution.channels_first = false;  // measured shapes are looked up without it
  const Chosen<GemmLaw> gemm = choose(profile_.gemm, convolution.dtype, peaks_);
  if (!gemm.law) return roofline_->time(convolution);
  const Chosen<ConvolutionLaw> chosen = choose(profile_.convolution, convolution.dtype, peaks_);
  const double efficiency =
      gemm.law->compute_efficiency * (chosen.law ? factor(*chosen.law, convolution) : 1);
  const Convolution executed = padded(convolution);
  const double slower = chosen.law ? unfilled(chosen.law->half_rate_tiles, convolution) : 1;
  Seconds time = law_time(*gemm.law, convolution.dtype, efficiency, slower * flops(executed),
                          memory_traffic(executed));
  if (chosen.law && chosen.law->winograd == WinogradUse::separate)
    time = std::min(time, in_tiles(*gemm.law, convolution).value_or(time));
  Reach reach = gemm.reach;
  if (!chosen.law) {
    reach.beyond("no law of convolutions, that of GEMMs instead");
    reach.basis = Basis::analytic;
    return {time, reach.basis, reach.why};
  }
  reach.weaken(chosen.reach);
  const auto known = chosen.same_unit ? find_residual(chosen.law->residuals, convolution)
                                      : std::optional<BatchResidual>{};
  const Seconds measured = (known ? known->factor : 1) * time;
  const Seconds taken = in_layout(given, *chosen.law, measured);
  const bool own = chosen.law->dtype == convolution.dtype && taken == measured;
  if (known && own && known->exact) return {taken, Basis::measured};
  if (known && known->outside)
    reach.beyond(fmt::format("batch {} was not measured", convolution.batch));
  return {taken, reach.basis, reach.why};
}

std::optional<Seconds> FittedCompute::in_tiles(const GemmLaw& law,
                                               const Convolution& convolution) const {
  const std::optional<Winograd> tiled = winograd(convolution);
  if (!tiled) return std::nullopt;
  const BytesPerSecond stream(law.memory_efficiency * peaks_.memory_bandwidth.count());
  return law_time(law, convolution.dtype, law.compute_efficiency, tiled->product, tiled->operands) +
         tiled->transforms / stream;
}

// What a law measured in the other layout takes in that of the convolution: no less than the
// machine allows.
Seconds FittedCompute::in_layout(const Convolution& given, const ConvolutionLaw& law,
                                 Seconds time) const {
  if (given.channels_first == law.channels_first) return time;
  Convolution copied_one = given;
  copied_one.channels_first = true;
  const Bytes moved = layout_copies(copied_one);
  const double numbers = static_cast<double>(moved.count()) /
                         static_cast<double>(2 * models::size_of(given.dtype).count());
  const Seconds copies = permuted(moved, numbers);
  if (given.channels_first) return time + copies;
  return std::max(roofline_->time(given).time, time - copies);
}

const MemoryLaw* law_of(const Profile& profile, models::MemoryOp op) {
  for (const MemoryLaw& law : profile.memory)
    if (law.op == op) return &law;
  return nullptr;
}

Seconds FittedCompute::permuted(Bytes moved, double numbers) const {
  const MemoryLaw* law = law_of(profile_, models::MemoryOp::elementwise);
  const Seconds streamed =
      moved / BytesPerSecond((law ? law->efficiency : 1) * peaks_.memory_bandwidth.count());
  return law ? std::max(streamed, one_by_one(*law, numbers)) : streamed;
}

Seconds FittedCompute::one_by_one(const MemoryLaw& law, double numbers) const {
  if (!law.element_rate || peaks_.fp32.count() <= 0) return Seconds{};
  return Seconds(numbers / (*law.element_rate * peaks_.fp32.count()));
}

// Its own, or that of the kind it is most like; nullptr: none at all.
const MemoryLaw* nearest_law(const Profile& profile, models::MemoryOp op) {
  if (const MemoryLaw* own = law_of(profile, op)) return own;
  if (op == models::MemoryOp::varying_gated_activation)
    return nearest_law(profile, models::MemoryOp::gated_activation);
  if (op == models::MemoryOp::gated_activation)
    return nearest_law(profile, models::MemoryOp::activation);
  if (op == models::MemoryOp::parallel_cross_entropy)
    return nearest_law(profile, models::MemoryOp::cross_entropy);
  if (op == models::MemoryOp::permutation) return nearest_law(profile, models::MemoryOp::embedding);
  return law_of(profile, models::MemoryOp::elementwise);
}

Estimate FittedCompute::time_of(const models::MemoryBound& kernel) const {
  const MemoryLaw* law = nearest_law(profile_, kernel.op);
  if (!law) return roofline_->time(kernel);
  const double efficiency =
      kernel.backward ? law->backward_efficiency.value_or(law->efficiency) : law->efficiency;
  const Bytes moved = kernel.read + kernel.written;
  const double share = l2_share(moved, peaks_.l2, law->l2_speedup);
  const BytesPerSecond stream(efficiency * peaks_.memory_bandwidth.count());
  Reach reach = reach_of(law->from);
  if (law->op != kernel.op)
    reach.beyond(fmt::format("no law of its kind, that of {} kernels instead", name(law->op)));
  reach.check(moved, law->least, law->most);
  if (law->most == Bytes(0) && share < 1) reach.beyond("runs from the L2, which was not fitted");
  const Seconds streamed = share * (moved / stream);
  const Seconds handled = one_by_one(*law, static_cast<double>(kernel.elements));
  const Seconds fixed = static_cast<double>(kernel.kernels) * law->fixed;
  return {fixed + std::max(streamed, handled), reach.basis, reach.why};
}

const Provenance* gemm_origin(const Profile& profile, const MachinePeaks& peaks, Dtype dtype) {
  const GemmLaw* law = gemm_law(profile, peaks, dtype);
  return law ? &law->from : nullptr;
}

const Provenance* origin_of(const Profile& profile, const MachinePeaks& peaks,
                            const models::Gemm& gemm) {
  return gemm_origin(profile, peaks, gemm.dtype);
}

const Provenance* origin_of(const Profile& profile, const MachinePeaks& peaks,
                            const Attention& attention) {
  const AttentionLaw* law = attention_law(profile, attention);
  return law ? &law->from : gemm_origin(profile, peaks, attention.dtype);
}

const Provenance* origin_of(const Profile& profile, const MachinePeaks& peaks,
                            const Convolution& convolution) {
  const Provenance* gemm = gemm_origin(profile, peaks, convolution.dtype);
  const ConvolutionLaw* law = choose(profile.convolution, convolution.dtype, peaks).law;
  return gemm && law ? &law->from : gemm;
}

const Provenance* origin_of(const Profile& profile, const MachinePeaks& /*peaks*/,
                            const models::MemoryBound& kernel) {
  const MemoryLaw* law = nearest_law(profile, kernel.op);
  return law ? &law->from : nullptr;
}

const Provenance* origin_of(const Profile& /*profile*/, const MachinePeaks& /*peaks*/,
                            const models::Timed& /*kernel*/) {
  return nullptr;
}

}  // namespace

const GemmLaw* gemm_law(const Profile& profile, const MachinePeaks& peaks, Dtype dtype) {
  return choose(profile.gemm, dtype, peaks).law;
}

const Provenance* law_origin(const Profile& profile, const MachinePeaks& peaks,
                             const models::Kernel& kernel) {
  return std::visit([&](const auto& k) { return origin_of(profile, peaks, k); }, kernel);
}

std::unique_ptr<ComputeCost> fitted_compute_cost(const Profile& profile,
                                                 const MachinePeaks& peaks) {
  TRAINYARD_CHECK(peaks.memory_bandwidth.count() > 0, "a GPU without memory bandwidth");
  return std::make_unique<FittedCompute>(profile, peaks);
}

}  // namespace trainyard::cost
