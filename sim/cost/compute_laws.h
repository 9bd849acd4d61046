// The equations of the compute costs as pure functions of their constants. Private to the room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "models/layer/kernel.h"
#include "sim/base/units.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {

// A kernel's demand on the two resources of a roofline, after efficiencies.
struct Demand {
  Seconds compute{};
  Seconds memory{};
};

// (x^p + y^p)^(1/p), in the form that cannot overflow: max (1 + (min/max)^p)^(1/p).
// Requires: demands not negative, p >= 1.
Seconds p_norm(Demand demand, double p);

// Time at the full clock over flops / peak: at least 1, and nearly 1 for a product of many full
// waves of the largest tile and long sums. Of the tiles that libraries have, the best is taken, and
// m n k times it never falls as one of them rises. A result too small for the smallest tiles to
// occupy all multiprocessors has its sums divided among them. Requires: sizes positive.
double tile_factor(const GemmTiles& tiles, const models::Gemm& gemm);

// Time over flops / peak: 1 / efficiency for a product whose tile_factor is 1, tile_factor for one
// far above 1 / efficiency, and between the two a norm that rises with both. Requires: efficiency
// positive, and at most 1 for that to hold.
double tiled_share(const GemmTiles& tiles, const models::Gemm& gemm, double efficiency);

// The inverse: the efficiency at which tiled_share is 1 / share; where tiles alone take longer, the
// larger of 1 and the share.
double efficiency_of(const GemmTiles& tiles, const models::Gemm& gemm, double share);

// Whether it is one of the floats of 16 bits.
inline bool is_half(models::Dtype dtype) {
  return dtype == models::Dtype::fp16 || dtype == models::Dtype::bf16;
}

// The law that prices a product of the type: of the unit that runs it, else of the other 16-bit
// type (the units are the same), else of the type whose peak is nearest, of those on the same cores
// (CUDA's, tensor's) if there are any. Null: there is no law.
const GemmLaw* gemm_law(const Profile& profile, const MachinePeaks& peaks, models::Dtype dtype);

// models::find_unit. Requires: the GPU has one.
models::Dtype unit_for(const MachinePeaks& peaks, models::Dtype dtype);

// What is left of a rate of arithmetic under a power limit: share^0.55. Requires: share in (0, 1].
// Source: docs/cost-gemm.md, "Power limits".
double clock_under(double power_share);

// Dense peak of the unit that runs a kernel of this type, at the clock that its power allows.
FlopsPerSecond peak(const MachinePeaks& peaks, models::Dtype dtype);

// 1 / l2_speedup for what fits into the L2, 1 from twice its size, linear in between, so that time
// stays continuous and monotone in the bytes.
double l2_share(Bytes moved, Bytes l2, double l2_speedup);

// The convolution that tensor cores execute: in 16-bit types and narrower, channels are filled up
// to multiples of 8 (ungrouped convolutions only).
models::Convolution padded(const models::Convolution& convolution);

// What too few tiles of the result for all multiprocessors make of X: 1 + half_rate_tiles / tiles
// of 128 x 128 numbers. A weight gradient's sums are divided into as many parts of 512 as there
// are, each a tile. Source: docs/cost-convolution.md.
double unfilled(double half_rate_tiles, const models::Convolution& convolution);

// What Winograd's algorithm executes in kernels of their own.
struct Winograd {
  Flops product;     // of tiles brought into its form, one for each of their terms
  Bytes operands;    // that it reads and writes
  Bytes transforms;  // what brings images, filters and results into that form, or back
};

// As cuDNN's CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED has it: tiles of 6 x 6 for 4 x 4 results
// of a 3 x 3 filter, of 9 x 9 (its kernels' names say) for 5 x 5 of a 5 x 5 one. Nothing for other
// filters, strides, groups, and fewer than 16 channels. Source: Lavin and Gray 2016, sections 3, 4.
std::optional<Winograd> winograd(const models::Convolution& convolution);

// What is read and written to hand a convolution's images to tensor cores, which want them pixel by
// pixel, and back: a part of its tensors, as convolutions between which nothing else stands share
// copies and some kernels take either. Nothing for fp32. Source: docs/cost-convolution.md.
Bytes layout_copies(const models::Convolution& convolution);

// The head size at which attention kernels run: libraries compile multiples of 32 and fill up.
std::int64_t compiled_head_size(std::int64_t head_size);

// FLOPs executed over useful ones, by what the law says each query costs beside its keys, and by
// the compiled head size where the law was fitted on another one. At least 1.
double executed_share(const AttentionLaw& law, const models::Attention& attention);

// The less trustworthy of two.
constexpr Basis weaker(Basis a, Basis b) {
  return std::max(a, b);
}

}  // namespace trainyard::cost
