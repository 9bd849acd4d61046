// Products in tiles: waves at the full clock, and what power lets many of them reach.
#include <doctest/doctest.h>

#include "sim/base/random.h"
#include "sim/cost/compute_laws.h"
#include "tests/cost/compute_support.h"
#include "tests/support/about.h"

using namespace trainyard;

namespace {

// No start, no memory to speak of: what is left is arithmetic.
Profile arithmetic(double efficiency, GemmTiles tiles) {
  Profile made = profile();
  GemmLaw& law = made.gemm.front();
  law.fixed = Seconds{};
  law.memory_efficiency = 1e6;
  law.compute_efficiency = efficiency;
  law.tiles = tiles;
  return made;
}

Gemm product(std::int64_t m, std::int64_t n, std::int64_t k) {
  Gemm gemm;
  gemm.m = m, gemm.n = n, gemm.k = k, gemm.dtype = Dtype::fp16;
  return gemm;
}

double at_peak(const Gemm& gemm) {
  return flops(gemm).count() / 100e12;
}

// A multiprocessor for each tile of 256 x 128 in 1024 x 2048.
constexpr GemmTiles kLarge{64, 0.1, 0.1, 0};

}  // namespace

TEST_CASE("full waves of the largest tile reach e, whatever e is") {
  for (const double efficiency : {0.3, 0.8, 1.0})
    for (const std::int64_t waves : {1, 2, 5})
      CHECK(near(seconds(arithmetic(efficiency, kLarge), product(1024 * waves, 2048, 512)),
                 at_peak(product(1024 * waves, 2048, 512)) / efficiency));
}

TEST_CASE("at the full clock a started wave takes as long as a full one") {
  const Profile machine = arithmetic(1, kLarge);
  const double full = seconds(machine, product(1024, 2048, 512));
  CHECK(near(seconds(machine, product(768, 2048, 512)), full));
  CHECK(near(seconds(machine, product(1, 128, 512)), full));
  CHECK(near(seconds(machine, product(1025, 2048, 512)), 2 * full));
  // Its operands the other way round: 128 x 256.
  CHECK(near(seconds(machine, product(2048, 1024, 512)), full));
}

TEST_CASE("power hides what waves leave idle") {
  // Half of the second wave is idle; at a quarter of the peak nobody notices.
  const Gemm gemm = product(1536, 2048, 512);
  CHECK(near(seconds(arithmetic(1, kLarge), gemm), at_peak(gemm) * 4 / 3));
  CHECK(seconds(arithmetic(0.25, kLarge), gemm) == about(4 * at_peak(gemm)).within(1e-3));
  // In between both count: the norm of the eighth power.
  const double both = std::pow(std::pow(4.0 / 3, 8) + std::pow(1 / 0.75, 8) - 1, 0.125);
  CHECK(seconds(arithmetic(0.75, kLarge), gemm) == about(both * at_peak(gemm)).within(1e-9));
}

TEST_CASE("smaller tiles are taken where they are quicker, and short sums pay for their start") {
  const Gemm quarter = product(512, 1024, 512);
  const double full = at_peak(product(1024, 2048, 512));
  // 32 of 64 tiles of 128 x 128 and all 64 of 128 x 64.
  CHECK(near(seconds(arithmetic(1, {64, 0.9, 0.1, 0}), quarter), full / 2 / 0.9));
  CHECK(near(seconds(arithmetic(1, {64, 0.9, 0.8, 0}), quarter), full / 4 / (0.9 * 0.8)));
  CHECK(near(seconds(arithmetic(1, {64, 0.1, 0.1, 256}), product(1024, 2048, 512)), full * 1.5));
}

TEST_CASE("a result too small for the smallest tiles has its sums divided") {
  // One tile of 64 x 32, at a sixteenth of the largest one's rate: 64 multiprocessors share 4096
  // terms, 64 for each, whose beginnings and ends take as long again.
  CHECK(near(tile_factor({64, 0.5, 0.5, 64}, product(64, 32, 4096)), 16 * 2));
  // Of 1024 terms no more than 16 parts are worth it.
  CHECK(near(tile_factor({64, 0.5, 0.5, 64}, product(64, 32, 1024)), 16 * 4 * 2));
}

TEST_CASE("tiles of another chip are not lent") {
  Profile lent = arithmetic(1, kLarge);
  keep_tiles_of(lent, kLarge.multiprocessors);
  CHECK(lent.gemm.front().tiles.has_value());
  keep_tiles_of(lent, kLarge.multiprocessors / 2);
  CHECK_FALSE(lent.gemm.front().tiles.has_value());
}

TEST_CASE("other units and batches have no tiles") {
  Profile tiled = profile();
  tiled.gemm.front().tiles = GemmTiles{64, 0.8, 0.9, 200};
  Gemm gemm = product(1025, 2049, 512);
  CHECK(seconds(tiled, gemm) > seconds(profile(), gemm));
  gemm.dtype = Dtype::bf16;
  CHECK(seconds(tiled, gemm) > seconds(profile(), gemm));
  gemm.dtype = Dtype::fp32;
  CHECK(seconds(tiled, gemm) == seconds(profile(), gemm));
  gemm.dtype = Dtype::fp16;
  gemm.batch = 8;
  CHECK(seconds(tiled, gemm) == seconds(profile(), gemm));
}

TEST_CASE("a larger product never takes less time, and no product beats its waves or its e") {
  const GemmTiles tiles{108, 0.833, 0.949, 191};
  Profile machine = profile();
  machine.gemm.front().tiles = tiles;
  SplitMix64 random(11);
  const auto draw = [&random](int least, int most) {
    const std::int64_t power =
        std::int64_t{1} << (least + static_cast<int>(random.next() %
                                                     static_cast<std::uint64_t>(most - least)));
    return power + static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(power));
  };
  for (int i = 0; i < 2000; ++i) {
    const Gemm gemm = product(draw(0, 15), draw(0, 15), draw(3, 14));
    const double time = seconds(machine, gemm);
    CHECK(tile_factor(tiles, gemm) >= 1);
    CHECK(tiled_share(tiles, gemm, 0.8) >=
          std::max(tile_factor(tiles, gemm), 1 / 0.8) * (1 - 1e-12));
    CHECK(time >= seconds(profile(), gemm) * (1 - 1e-12));
    for (const auto size : {&Gemm::m, &Gemm::n, &Gemm::k}) {
      Gemm larger = gemm;
      larger.*size += draw(0, 8);
      CHECK(seconds(machine, larger) >= time * (1 - 1e-12));
    }
  }
}

TEST_CASE("the smallest and the largest products have a time") {
  for (const GemmTiles tiles : {GemmTiles{1, 1, 1, 0}, GemmTiles{100000, 0.1, 0.1, 1e4}})
    for (const double efficiency : {1e-3, 1.0})
      for (const Gemm& gemm :
           {product(1, 1, 1), product(1, 1 << 20, 1), product(1 << 24, 1 << 24, 1 << 20)}) {
        const double time = seconds(arithmetic(efficiency, tiles), gemm);
        CHECK(time >= at_peak(gemm));
        CHECK(time < 1e20);
      }
}

TEST_CASE("an efficiency is found from what a product reaches, as far as its tiles allow") {
  const GemmTiles tiles{132, 0.977, 0.763, 288};
  const Gemm gemm = product(8192, 8192, 8192);
  for (const double share : {0.1, 0.5, 0.9}) {
    const double efficiency = efficiency_of(tiles, gemm, share);
    CHECK(1 / tiled_share(tiles, gemm, efficiency) == about(share).within(1e-9));
  }
  // Its tiles alone take longer.
  CHECK(efficiency_of(tiles, gemm, 0.99) == 1);
  CHECK(efficiency_of(tiles, gemm, 1.1) == about(1.1).within(1e-9));
}
