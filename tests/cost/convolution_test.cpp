// Laws of convolutions.
#include <doctest/doctest.h>

#include "sim/cost/compute_laws.h"
#include "tests/cost/compute_support.h"
#include "tests/support/about.h"

using namespace trainyard;
using namespace trainyard::literals;

TEST_CASE("a convolution is the GEMM law with the factors that apply") {
  Profile net = profile();
  net.gemm[0].exponent = 1;  // a sum: the compute part can be read off
  ConvolutionLaw factors;
  factors.efficiency = 0.5;
  factors.kernel_3x3 = 1.5;
  factors.few_channels = 0.25;
  factors.data_gradient = 0.8;
  factors.weight_gradient = 0.9;
  net.convolution = {factors};
  Convolution conv{.batch = 32,
                   .in_channels = 64,
                   .out_channels = 128,
                   .in_height = 56,
                   .in_width = 56,
                   .out_height = 28,
                   .out_width = 28,
                   .kernel_height = 1,
                   .kernel_width = 1,
                   .groups = 1,
                   .pass = ConvolutionPass::forward,
                   .dtype = Dtype::fp16};
  const auto compute = [&](const Convolution& c) {
    return seconds(net, c) - 5e-6 - static_cast<double>(memory_traffic(padded(c)).count()) / 500e9;
  };
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-9 * b; };
  const double work = 2.0 * 32 * 28 * 28 * 128 * 64;
  CHECK(close(compute(conv), work / (0.5 * 80e12)));
  conv.pass = ConvolutionPass::data_gradient;  // strided: still the multiply-adds of the outputs
  CHECK(close(compute(conv), work / (0.8 * 0.5 * 80e12)));
  conv.pass = ConvolutionPass::weight_gradient;
  CHECK(close(compute(conv), work / (0.9 * 0.5 * 80e12)));
  conv.pass = ConvolutionPass::forward;
  conv.kernel_height = conv.kernel_width = 3;
  CHECK(close(compute(conv), 9 * work / (1.5 * 0.5 * 80e12)));
  conv.in_channels = 3;  // padded to 8
  CHECK(close(compute(conv), 9 * work / 8 / (0.25 * 1.5 * 0.5 * 80e12)));
}

namespace {

// Elementwise kernels at .8 of 1 TB/s, and convolutions without factors.
Profile with_copies() {
  Profile net = profile();
  MemoryLaw elementwise;
  elementwise.op = MemoryOp::elementwise;
  elementwise.efficiency = 0.8;
  net.memory = {elementwise};
  net.convolution = {ConvolutionLaw{}};
  return net;
}

// 192,000 numbers in and out.
constexpr Convolution kImages{.batch = 10,
                              .in_channels = 64,
                              .out_channels = 128,
                              .in_height = 10,
                              .in_width = 10,
                              .out_height = 10,
                              .out_width = 10,
                              .dtype = Dtype::fp16};

}  // namespace

TEST_CASE("images stored channel by channel are copied for tensor cores") {
  Profile net = with_copies();
  const auto copies = [&](ConvolutionPass pass) {
    Convolution conv = kImages;
    conv.pass = pass;
    const double without = seconds(net, conv);
    conv.channels_first = true;
    return seconds(net, conv) - without;
  };
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-6 * b; };
  // A third of the numbers, of two bytes, read and written; backward .45 of them.
  CHECK(close(copies(ConvolutionPass::forward), 2 * 0.33 * 192000 * 2 / 0.8e12));
  CHECK(close(copies(ConvolutionPass::weight_gradient), 2 * 0.45 * 192000 * 2 / 0.8e12));
  // Permuted numbers are handled one by one, where that takes longer.
  net.memory[0].element_rate = 1e9 / peaks().fp32.count();
  CHECK(close(copies(ConvolutionPass::forward), 0.33 * 192000 / 1e9));
  net.memory[0].element_rate = 1e15 / peaks().fp32.count();
  CHECK(close(copies(ConvolutionPass::forward), 2 * 0.33 * 192000 * 2 / 0.8e12));
}

TEST_CASE("a law of images stored channel by channel holds copies that others do without") {
  Profile net = with_copies();
  Convolution conv = kImages;
  conv.kernel_height = conv.kernel_width = 3;
  const double law = seconds(net, conv);
  net.convolution[0].channels_first = true;
  conv.channels_first = true;
  CHECK(seconds(net, conv) == law);
  conv.channels_first = false;
  CHECK(seconds(net, conv) == about(law - 2 * 0.33 * 192000 * 2 / 0.8e12));
  // However slow copies are, not below what the datasheet allows.
  net.memory[0].efficiency = 1e-6;
  CHECK(seconds(net, conv) == roofline_compute_cost(peaks())->time(conv).time.count());
  conv.dtype = Dtype::fp32;
  CHECK(layout_copies(conv) == Bytes(0));
}

TEST_CASE("a convolution with few tiles, or a strided data gradient, is slower by its law") {
  Profile net = profile();
  net.gemm[0].exponent = 1;
  Convolution conv{.batch = 2,
                   .in_channels = 64,
                   .out_channels = 128,
                   .in_height = 32,
                   .in_width = 32,
                   .out_height = 32,
                   .out_width = 32,
                   .pass = ConvolutionPass::forward,
                   .dtype = Dtype::fp16};
  ConvolutionLaw law;
  net.convolution = {law};
  const auto compute = [&net](const Convolution& c) {
    return seconds(net, c) - 5e-6 - static_cast<double>(memory_traffic(c).count()) / 500e9;
  };
  const auto slower = [&](double half_rate_tiles) {
    net.convolution[0].half_rate_tiles = 0;
    const double whole = compute(conv);
    net.convolution[0].half_rate_tiles = half_rate_tiles;
    return compute(conv) / whole;
  };
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-9 * b; };
  CHECK(close(slower(16), 2));                 // 2 x 32 x 32 pixels x 128 channels: 16 tiles
  conv.pass = ConvolutionPass::data_gradient;  // of 64 channels: 8
  CHECK(close(slower(16), 3));
  conv.pass = ConvolutionPass::weight_gradient;  // 128 x 64 numbers, in 4 parts of 512 pixels: 2
  CHECK(close(slower(16), 9));
  net.convolution[0].strided_data_gradient = 0.5;
  conv.pass = ConvolutionPass::data_gradient;
  net.convolution[0].half_rate_tiles = 0;
  const double dense = compute(conv);
  conv.out_height = conv.out_width = 16;
  CHECK(close(compute(conv), dense / 4 / 0.5));
}

namespace {

Convolution square(std::int64_t filter, std::int64_t side, ConvolutionPass pass) {
  return {.batch = 2,
          .in_channels = 64,
          .out_channels = 128,
          .in_height = side,
          .in_width = side,
          .out_height = side,
          .out_width = side,
          .kernel_height = filter,
          .kernel_width = filter,
          .pass = pass,
          .dtype = Dtype::fp32};
}

}  // namespace

TEST_CASE("Winograd's algorithm multiplies tiles, one product for each of their terms") {
  for (const ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::data_gradient,
                                     ConvolutionPass::weight_gradient}) {
    // 4 x 4 results of 3 x 3: a quarter of the multiply-adds where tiles are whole, 2 x 8 x 8.
    const Convolution whole = square(3, 32, pass);
    const Winograd tiled = winograd(whole).value();
    CHECK(tiled.product == 0.25 * flops(whole));
    CHECK(tiled.operands == Bytes(4 * 36 * (128 * (64 + 128) + 64 * 128)));
    CHECK(tiled.transforms == tiled.operands + memory_traffic(whole));
    CHECK(winograd(square(3, 29, pass))->product == tiled.product);  // as much as of 32 x 32
    // 5 x 5 of 5 x 5: 81 products for 625.
    const Convolution wide = square(5, 35, pass);
    const double share = winograd(wide)->product.count() / flops(wide).count();
    CHECK(share == about(81.0 / 625));
    for (const std::int64_t filter : {1, 2, 7})
      CHECK_FALSE(winograd(square(filter, 32, pass)));
    Convolution other = whole;
    other.kernel_width = 5;
    CHECK_FALSE(winograd(other));
    other = whole;
    other.groups = 2;
    CHECK_FALSE(winograd(other));
    other = whole;
    other.out_height = other.out_width = 16;  // a stride
    CHECK_FALSE(winograd(other));
    other = whole;
    other.in_channels = 15;
    CHECK_FALSE(winograd(other));
  }
}

TEST_CASE("what is left without padding is no stride") {
  for (const std::int64_t kernel : {1, 3, 5, 7})
    for (std::int64_t side = kernel; side < 40; ++side) {
      Convolution conv = square(kernel, side, ConvolutionPass::forward);
      CHECK_FALSE(strided(conv));
      conv.out_height = conv.out_width = side - kernel + 1;
      CHECK_FALSE(strided(conv));
      if (side < 4 * kernel) continue;
      conv.out_width = side / 2;
      CHECK(strided(conv));
      conv.out_width = side;
      conv.out_height = side / 2;
      CHECK(strided(conv));
    }
}

TEST_CASE("a convolution takes Winograd's kernels where they are quicker") {
  Profile with = profile();
  with.gemm[0].exponent = 1;
  with.gemm[0].dtype = Dtype::fp32;
  with.convolution = {ConvolutionLaw{}};
  with.convolution[0].dtype = Dtype::fp32;
  Profile without = with;
  with.convolution[0].winograd = WinogradUse::separate;
  bool taken = false, left = false;
  for (const std::int64_t channels : {16, 64, 256, 1024}) {
    Convolution conv = square(3, 56, ConvolutionPass::weight_gradient);
    conv.in_channels = conv.out_channels = channels;
    const Winograd tiled = winograd(conv).value();
    const double direct = seconds(without, conv);
    const double rate = flops(conv).count() /
                        (direct - 5e-6 - static_cast<double>(memory_traffic(conv).count()) / 500e9);
    const double own = 5e-6 + tiled.product.count() / rate +
                       static_cast<double>((tiled.operands + tiled.transforms).count()) / 500e9;
    CHECK(seconds(with, conv) == about(std::min(direct, own)));
    (own < direct ? taken : left) = true;
  }
  CHECK(taken);
  CHECK(left);
}

TEST_CASE("what Winograd's algorithm gains in one kernel, a stride loses") {
  Profile plain = profile();
  ConvolutionLaw law;
  law.kernel_3x3 = 1.8;
  plain.convolution = {law};
  Profile fused = plain;
  fused.convolution[0].winograd = WinogradUse::fused;
  Convolution conv = square(3, 56, ConvolutionPass::forward);
  conv.dtype = Dtype::fp16;
  conv.batch = 64;
  conv.in_channels = conv.out_channels = 512;
  CHECK(seconds(fused, conv) == seconds(plain, conv));
  Convolution strided_one = conv;
  strided_one.out_height = strided_one.out_width = 28;
  CHECK(seconds(fused, strided_one) > 1.3 * seconds(plain, strided_one));
  strided_one.in_channels = 3;  // priced by few_channels, as it was fitted
  CHECK(seconds(fused, strided_one) == seconds(plain, strided_one));
}

TEST_CASE("channels are padded to eight for tensor cores only") {
  Convolution conv;
  conv.in_channels = 3;
  conv.out_channels = 20;
  conv.dtype = Dtype::fp16;
  CHECK(padded(conv).in_channels == 8);
  CHECK(padded(conv).out_channels == 24);
  conv.dtype = Dtype::fp32;
  CHECK(padded(conv).in_channels == 3);
  conv.dtype = Dtype::bf16;
  conv.groups = 3;
  CHECK(padded(conv).in_channels == 3);
}
