#include "sim/cost/compute_laws.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "models/layer/peak.h"
#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "sim/base/power.h"

namespace trainyard::cost {

using models::Convolution;
using models::Dtype;
using models::peak_of;

namespace {

// Below this the smaller demand adds less than 1e-15 of the larger at any p >= 1.
constexpr double kNegligible = 1e-15;

double eighth_power(double x) {
  const double square = x * x;
  return square * square * square * square;
}

double eighth_root(double x) {
  return std::sqrt(std::sqrt(std::sqrt(x)));
}

}  // namespace

Seconds p_norm(Demand demand, double p) {
  const double low = std::min(demand.compute, demand.memory).count();
  const double high = std::max(demand.compute, demand.memory).count();
  TRAINYARD_CHECK(low >= 0, "a demand of {} s", low);
  TRAINYARD_CHECK(p >= 1 && p <= 8, "p-norm with p = {}", p);
  if (low <= high * kNegligible) return Seconds(high);
  return Seconds(high * power(1 + power(low / high, p), 1 / p));
}

double tile_factor(const GemmTiles& tiles, const models::Gemm& gemm) {
  // Rows, columns, and how many grades below the largest.
  struct Tile {
    std::int64_t rows, columns;
    int grade;
  };
  constexpr std::array<Tile, 10> kTiles = {{{256, 128, 0},
                                            {128, 256, 0},
                                            {128, 128, 1},
                                            {256, 64, 2},
                                            {64, 256, 2},
                                            {128, 64, 2},
                                            {64, 128, 2},
                                            {64, 64, 3},
                                            {64, 32, 4},
                                            {32, 64, 4}}};
  const std::array<double, 5> reached = {
      1, tiles.half, tiles.half * tiles.smaller, tiles.half * tiles.smaller * tiles.smaller,
      tiles.half * tiles.smaller * tiles.smaller * tiles.smaller};
  const double work =
      static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.batch);
  // A part has as many terms as its beginning and end are worth, or more.
  const auto sums = static_cast<double>(gemm.k);
  const double most_parts = std::max(1.0, sums / std::max(tiles.prologue, 1.0));
  double best = 0;
  for (const auto& [rows, columns, grade] : kTiles) {
    const double count = static_cast<double>(divide_up(gemm.m, rows)) *
                         static_cast<double>(divide_up(gemm.n, columns)) *
                         static_cast<double>(gemm.batch);
    const double waves = std::ceil(count / tiles.multiprocessors);
    const double executed = waves * tiles.multiprocessors * static_cast<double>(rows * columns);
    const double factor = executed / (work * reached.at(static_cast<std::size_t>(grade)));
    // Where even the smallest tiles leave multiprocessors idle, these share the sums of a tile.
    const bool is_smallest = grade + 1 == static_cast<int>(reached.size());
    const double parts =
        is_smallest ? std::clamp(tiles.multiprocessors / count, 1.0, most_parts) : 1.0;
    const double whole = factor / parts * (1 + tiles.prologue * parts / sums);
    if (best == 0 || whole < best) best = whole;
  }
  return best;
}

double tiled_share(const GemmTiles& tiles, const models::Gemm& gemm, double efficiency) {
  return eighth_root(eighth_power(tile_factor(tiles, gemm)) + eighth_power(1 / efficiency) - 1);
}

double efficiency_of(const GemmTiles& tiles, const models::Gemm& gemm, double share) {
  const double measured = eighth_power(1 / share);
  const double rest = measured + 1 - eighth_power(tile_factor(tiles, gemm));
  return 1 / eighth_root(std::max(rest, std::min(measured, 1.0)));
}

Dtype unit_for(const MachinePeaks& peaks, Dtype dtype) {
  const std::optional<Dtype> unit = models::find_unit(peaks, dtype);
  TRAINYARD_CHECK(unit.has_value(), "this GPU has no unit for {}", name(dtype));
  return *unit;
}

double clock_under(double power_share) {
  return power_share < 1 ? power(power_share, 0.55) : 1;
}

FlopsPerSecond peak(const MachinePeaks& peaks, Dtype dtype) {
  return clock_under(peaks.power) * peak_of(peaks, unit_for(peaks, dtype));
}

double unfilled(double half_rate_tiles, const models::Convolution& c) {
  if (half_rate_tiles == 0) return 1;
  constexpr double kTile = 128 * 128, kSums = 512;
  const auto pixels = static_cast<double>(c.batch * c.out_height * c.out_width);
  const auto images = static_cast<double>(c.batch * c.in_height * c.in_width);
  const auto filter =
      static_cast<double>(c.in_channels / c.groups * c.kernel_height * c.kernel_width);
  double tiles = pixels * static_cast<double>(c.out_channels) / kTile;
  if (c.pass == models::ConvolutionPass::data_gradient)
    tiles = images * static_cast<double>(c.in_channels) / kTile;
  if (c.pass == models::ConvolutionPass::weight_gradient)
    tiles = static_cast<double>(c.out_channels) * filter / kTile * std::max(1.0, pixels / kSums);
  return 1 + half_rate_tiles / tiles;
}

std::optional<Winograd> winograd(const models::Convolution& c) {
  constexpr std::int64_t kFewChannels = 16;
  const bool has_filter =
      c.kernel_height == c.kernel_width && (c.kernel_height == 3 || c.kernel_height == 5);
  if (!has_filter || c.groups > 1 || strided(c) || c.in_channels < kFewChannels)
    return std::nullopt;
  const std::int64_t results = c.kernel_height == 3 ? 4 : 5;  // of a tile, along a side
  const std::int64_t terms = (results + c.kernel_height - 1) * (results + c.kernel_height - 1);
  const bool of_images = c.pass == models::ConvolutionPass::data_gradient;
  const std::int64_t height = of_images ? c.in_height : c.out_height;
  const std::int64_t width = of_images ? c.in_width : c.out_width;
  const std::int64_t tiles = c.batch * divide_up(height, results) * divide_up(width, results);
  const std::int64_t numbers =
      terms * (tiles * (c.in_channels + c.out_channels) + c.in_channels * c.out_channels);
  const Bytes operands = numbers * models::size_of(c.dtype);
  const auto products =
      static_cast<double>(terms * tiles) * static_cast<double>(c.in_channels * c.out_channels);
  return Winograd{Flops(2 * products), operands, operands + models::memory_traffic(c)};
}

Bytes layout_copies(const models::Convolution& c) {
  if (!c.channels_first || c.dtype == models::Dtype::fp32) return Bytes(0);
  constexpr std::int64_t kForward = 33, kBackward = 45;  // per cent of its tensors
  const std::int64_t share = c.pass == models::ConvolutionPass::forward ? kForward : kBackward;
  const std::int64_t numbers = c.batch * (c.in_channels * c.in_height * c.in_width +
                                          c.out_channels * c.out_height * c.out_width);
  return 2 * numbers * share / 100 * models::size_of(c.dtype);
}

bool strided(const models::Convolution& c) {
  // With a stride of 1 and no padding as much is left as the kernel fits in.
  const auto along = [](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return 2 * out <= in + 1 && out < in - kernel + 1;
  };
  return along(c.in_height, c.out_height, c.kernel_height) ||
         along(c.in_width, c.out_width, c.kernel_width);
}

double l2_share(Bytes moved, Bytes l2, double l2_speedup) {
  if (l2.count() <= 0 || moved >= 2 * l2) return 1;
  const double inside = 1 / l2_speedup;
  if (moved <= l2) return inside;
  const double along = static_cast<double>((moved - l2).count()) / static_cast<double>(l2.count());
  return inside + along * (1 - inside);
}

Convolution padded(const Convolution& convolution) {
  Convolution wide = convolution;
  if (convolution.groups > 1 || size_of(convolution.dtype) > Bytes(2)) return wide;
  wide.in_channels = (convolution.in_channels + 7) / 8 * 8;
  wide.out_channels = (convolution.out_channels + 7) / 8 * 8;
  return wide;
}

}  // namespace trainyard::cost
