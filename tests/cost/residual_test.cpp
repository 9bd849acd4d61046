// The tables of measured shapes: exact where measured, continuous between, silent far away.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "sim/base/random.h"
#include "sim/cost/residuals.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Gemm gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  return {.m = m, .n = n, .k = k, .batch = batch, .dtype = Dtype::fp16};
}

// A table of random shapes with factors in [0.8, 1.25].
std::vector<GemmResidual> random_table(int rows, std::uint64_t seed) {
  SplitMix64 random(seed);
  const auto size = [&] { return std::int64_t{16} << random.below(12); };
  std::vector<GemmResidual> table;
  for (int i = 0; i < rows; ++i) {
    const auto spread = static_cast<std::int64_t>(random.below(64));
    table.push_back({size() + spread, size() + spread, size(), 1,
                     0.8 + 0.45 * static_cast<double>(random.below(1000)) / 1000});
  }
  return table;
}

Convolution convolution(std::int64_t batch) {
  Convolution c;
  c.batch = batch;
  c.in_channels = c.out_channels = 64;
  c.in_height = c.in_width = c.out_height = c.out_width = 56;
  c.kernel_height = c.kernel_width = 3;
  return c;
}

}  // namespace

TEST_CASE("a measured shape has its factor, exactly") {
  const std::vector<GemmResidual> table = random_table(2000, 1);
  const GemmResiduals residuals(table);
  int first = 0;
  for (const GemmResidual& row : table) {
    const Residual found = residuals.at(gemm(row.m, row.n, row.k));
    CHECK(found.exact);
    // Of two rows of one shape the first; a profile file may not have two.
    first += found.factor == row.factor ? 1 : 0;
  }
  CHECK(first > 1900);
}

TEST_CASE("without rows, far from all of them and for batches the factor is 1") {
  CHECK(GemmResiduals({}).at(gemm(1, 2, 3)).factor == 1);
  const GemmResiduals one({{1024, 1024, 1024, 1, 1.3}});
  CHECK(one.at(gemm(4096, 1024, 1024)).factor == 1);  // two doublings away
  CHECK(one.at(gemm(4095, 1024, 1024)).factor > 1);
  CHECK(one.at(gemm(1024, 1024, 1024, 2)).factor == 1);
  CHECK_FALSE(one.at(gemm(1024, 1024, 1024, 2)).exact);
  const GemmResiduals batch({{1024, 1024, 1024, 8, 1.3}});
  CHECK(batch.at(gemm(1024, 1024, 1024)).factor == 1);
  CHECK(batch.at(gemm(1024, 1024, 1024, 8)).exact);
  CHECK(batch.at(gemm(1024, 1024, 1024, 16)).factor == about(1 + 0.3 * 0.75));
}

TEST_CASE("a single neighbour fades with the square of the distance in doublings") {
  const GemmResiduals one({{1024, 1024, 1024, 1, 1.4}});
  CHECK(one.at(gemm(2048, 1024, 1024)).factor == about(1.3));
  CHECK(one.at(gemm(1024, 512, 1024)).factor == about(1.3));
  CHECK(one.at(gemm(2048, 2048, 1024)).factor == about(1.2));
}

TEST_CASE("half way between two rows their factors are averaged") {
  const GemmResiduals two({{1024, 512, 64, 1, 1.2}, {4096, 512, 64, 1, 0.8}});
  CHECK(two.at(gemm(2048, 512, 64)).factor == about(1));
  CHECK(two.at(gemm(1500, 512, 64)).factor > 1);
  CHECK(two.at(gemm(3000, 512, 64)).factor < 1);
}

TEST_CASE("the factor lies within those of the table and is continuous in the sizes") {
  for (const std::uint64_t seed : {2U, 3U, 4U}) {
    const GemmResiduals residuals(random_table(300, seed));
    double last = residuals.at(gemm(20'000, 2048, 3000)).factor;
    double largest = 0;
    for (std::int64_t m = 20'001; m < 24'000; ++m) {
      const double factor = residuals.at(gemm(m, 2048, 3000)).factor;
      REQUIRE(factor >= 0.8);
      REQUIRE(factor <= 1.25);
      largest = std::max(largest, std::abs(factor - last));
      last = factor;
    }
    CAPTURE(seed);
    CHECK(largest < 1e-3);  // a step of 1/20000 of m; a jump would be of the order of 0.01
  }
}

TEST_CASE("rows at one distance do not divide by zero") {
  std::vector<GemmResidual> same;
  for (int i = 0; i < 40; ++i)
    same.push_back({1024, 1024, 1024, 1, 1.1});
  const Residual found = GemmResiduals(same).at(gemm(1100, 1024, 1024));
  CHECK(found.factor == about(1.1).within(0.01));
}

TEST_CASE("a convolution's factor is that of its shape at the nearest batches") {
  const std::vector<ConvolutionResidual> rows = {
      {convolution(16), 1.4}, {convolution(64), 1.2}, {convolution(256), 1.0}};
  CHECK(find_residual(rows, convolution(64))->exact);
  CHECK(find_residual(rows, convolution(64))->factor == 1.2);
  CHECK(find_residual(rows, convolution(32))->factor == about(1.3));
  CHECK_FALSE(find_residual(rows, convolution(32))->exact);
  CHECK_FALSE(find_residual(rows, convolution(32))->outside);
  CHECK(find_residual(rows, convolution(8))->factor == 1.4);
  CHECK(find_residual(rows, convolution(8))->outside);
  CHECK(find_residual(rows, convolution(512))->factor == 1.0);
  CHECK(find_residual(rows, convolution(512))->outside);
  Convolution other = convolution(64);
  other.pass = ConvolutionPass::data_gradient;
  CHECK_FALSE(find_residual(rows, other));
  other = convolution(64);
  other.dtype = Dtype::bf16;  // the caller judges the type
  CHECK(find_residual(rows, other)->exact);
}
