#include <doctest/doctest.h>

#include <cmath>

#include "models/layer/peak.h"
#include "sim/cost/compute_laws.h"
#include "sim/cost/profile.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

// Round figures: 100 TFLOP/s in 16 bits, 10 in fp32, 1 TB/s.
MachinePeaks peaks() {
  return {.fp32 = 10_TFLOPs,
          .tf32 = 50_TFLOPs,
          .fp16 = 100_TFLOPs,
          .bf16 = 100_TFLOPs,
          .fp8 = {},
          .memory_bandwidth = 1000_GBps,
          .l2 = Bytes(40'000'000)};
}

GemmLaw gemm_law(Dtype dtype, double p = 2) {
  GemmLaw law;
  law.dtype = dtype;
  law.fixed = Seconds(5e-6);
  law.compute_efficiency = 0.8;
  law.memory_efficiency = 0.5;
  law.exponent = p;
  law.from.basis = Basis::interpolated;
  return law;
}

MemoryLaw memory_law(MemoryOp op, double efficiency, double l2_speedup = 1) {
  MemoryLaw law;
  law.op = op;
  law.fixed = Seconds(2e-6);
  law.efficiency = efficiency;
  law.l2_speedup = l2_speedup;
  law.from.basis = Basis::measured;
  return law;
}

Profile profile() {
  Profile made;
  made.gemm = {gemm_law(Dtype::fp16)};
  made.batched_gemm_efficiency = 0.5;
  made.batched_gemm_from.basis = Basis::analytic;
  made.memory = {memory_law(MemoryOp::elementwise, 0.8), memory_law(MemoryOp::softmax, 0.4)};
  return made;
}

Estimate estimate(const Profile& from, const Kernel& kernel) {
  return fitted_compute_cost(from, peaks())->time(kernel);
}
double seconds(const Profile& from, const Kernel& kernel) {
  return estimate(from, kernel).time.count();
}
bool near(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::abs(b);
}

constexpr Gemm kGemm{.m = 1024, .n = 2048, .k = 512, .batch = 1, .dtype = Dtype::fp16};

}  // namespace

TEST_CASE("a GEMM takes t0 plus the p-norm of its compute and memory time") {
  const double x = 2.0 * 1024 * 2048 * 512 / 80e12;
  const double y = 2.0 * (1024 * 512 + 512 * 2048 + 1024 * 2048) / 500e9;
  CHECK(near(seconds(profile(), kGemm), 5e-6 + std::sqrt(x * x + y * y)));
  CHECK(estimate(profile(), kGemm).basis == Basis::interpolated);
}

TEST_CASE("the p-norm lies between the larger demand and the sum, and p = 1 is the sum") {
  const Demand demand{Seconds(3e-6), Seconds(4e-6)};
  CHECK(near(p_norm(demand, 1).count(), 7e-6));
  CHECK(near(p_norm(demand, 2).count(), 5e-6));
  double before = 8e-6;
  for (double p = 1; p <= 8; p += 0.25) {
    const double now = p_norm(demand, p).count();
    CHECK(now >= 4e-6);
    CHECK(now < before);
    before = now;
  }
  CHECK(p_norm({Seconds(1), Seconds(0)}, 2).count() == 1);
  CHECK(p_norm({Seconds(1e300), Seconds(1e-300)}, 8).count() == 1e300);
  CHECK(p_norm({Seconds(0), Seconds(0)}, 1.5).count() == 0);
}

TEST_CASE("a batch multiplies both demands and lowers the compute efficiency") {
  Gemm batched = kGemm;
  batched.batch = 16;
  const double x = 16 * 2.0 * 1024 * 2048 * 512 / (0.5 * 80e12);
  const double y = 16 * 2.0 * (1024 * 512 + 512 * 2048 + 1024 * 2048) / 500e9;
  CHECK(near(seconds(profile(), batched), 5e-6 + std::sqrt(x * x + y * y)));
  CHECK(estimate(profile(), batched).basis == Basis::analytic);
}

TEST_CASE("the two 16-bit types share a law, other types borrow the nearest and say so") {
  Profile two = profile();
  GemmLaw fp32 = gemm_law(Dtype::fp32);
  fp32.compute_efficiency = 0.9;
  two.gemm.push_back(fp32);
  Gemm gemm = kGemm;

  gemm.dtype = Dtype::bf16;
  CHECK(seconds(two, gemm) == seconds(two, kGemm));
  CHECK(estimate(two, gemm).basis == Basis::interpolated);

  gemm.dtype = Dtype::tf32;  // 50 TFLOP/s: nearer to 100 than to 10
  const double x = 2.0 * 1024 * 2048 * 512 / (0.8 * 50e12);
  const double y = 4.0 * (1024 * 512 + 512 * 2048 + 1024 * 2048) / 500e9;
  CHECK(near(seconds(two, gemm), 5e-6 + std::sqrt(x * x + y * y)));
  CHECK(estimate(two, gemm).basis == Basis::extrapolated);

  gemm.dtype = Dtype::fp32;
  CHECK(estimate(two, gemm).basis == Basis::interpolated);
}

TEST_CASE("a chip without a unit for a type runs it on the next wider one") {
  MachinePeaks volta = peaks();
  volta.bf16 = volta.tf32 = {};
  CHECK(unit_for(volta, Dtype::bf16) == Dtype::fp32);
  CHECK(unit_for(volta, Dtype::tf32) == Dtype::fp32);
  CHECK(unit_for(volta, Dtype::fp8) == Dtype::fp16);
  CHECK(unit_for(volta, Dtype::fp16) == Dtype::fp16);
  volta.fp16 = {};
  CHECK(unit_for(volta, Dtype::fp16) == Dtype::fp32);
  CHECK(peak(volta, Dtype::fp16) == 10_TFLOPs);
}

TEST_CASE("a law of a type that the chip has no unit for comes last, and is no mistake") {
  MachinePeaks half = peaks();
  half.fp32 = half.tf32 = {};
  Gemm gemm = kGemm;
  Profile other;
  other.gemm = {gemm_law(Dtype::fp32)};
  CHECK(estimate(other, gemm).basis == Basis::extrapolated);
  const Estimate alone = fitted_compute_cost(other, half)->time(gemm);
  CHECK(near(alone.time.count(), seconds(other, gemm)));
  CHECK(alone.basis == Basis::extrapolated);
  other.gemm.push_back(gemm_law(Dtype::bf16));
  CHECK(fitted_compute_cost(other, half)->time(gemm).basis == Basis::interpolated);
}

TEST_CASE("every kernel that a chip has a unit for is priced by laws of any type") {
  for (unsigned units = 1; units < 32; ++units) {
    MachinePeaks some = peaks();
    for (std::size_t i = 0; i < models::kDtypes.size(); ++i)
      models::peak_of(some, models::kDtypes[i]) =
          FlopsPerSecond((units >> i & 1) != 0 ? 1e13 * static_cast<double>(i + 1) : 0);
    for (unsigned laws = 0; laws < 32; ++laws) {
      Profile of_some;
      for (std::size_t i = 0; i < models::kDtypes.size(); ++i) {
        if ((laws >> i & 1) == 0) continue;
        of_some.gemm.push_back(gemm_law(models::kDtypes[i]));
        of_some.convolution.emplace_back();
        of_some.convolution.back().dtype = models::kDtypes[i];
      }
      const auto cost = fitted_compute_cost(of_some, some);
      for (const Dtype dtype : models::kDtypes) {
        if (!models::find_unit(some, dtype)) continue;
        Gemm gemm = kGemm;
        gemm.dtype = dtype;
        Convolution convolution{4, 8, 8, 14, 14, 14, 14, 3, 3};
        convolution.dtype = dtype;
        for (const Kernel& kernel : {Kernel(gemm), Kernel(convolution)}) {
          const double time = cost->time(kernel).time.count();
          CHECK(time > 0);
          CHECK(time < 1);
        }
      }
    }
  }
}

TEST_CASE("without a law the roofline answers, as analytic") {
  const auto roofline = roofline_compute_cost(peaks());
  const Kernel kernels[] = {kGemm, Attention{}, Convolution{}, MemoryBound{}};
  for (const Kernel& kernel : kernels) {
    CHECK(seconds(Profile{}, kernel) == roofline->time(kernel).time.count());
    CHECK(estimate(Profile{}, kernel).basis == Basis::analytic);
  }
}

TEST_CASE("the roofline is the busier of arithmetic and memory") {
  const auto roofline = roofline_compute_cost(peaks());
  Gemm large{.m = 10'000, .n = 10'000, .k = 10'000, .batch = 1, .dtype = Dtype::fp16};
  CHECK(near(roofline->time(large).time.count(), 2e12 / 100e12));
  Gemm thin{.m = 1, .n = 10'000, .k = 10'000, .batch = 1, .dtype = Dtype::fp16};
  CHECK(near(roofline->time(thin).time.count(), 2.0 * (1e4 + 1e8 + 1e4) / 1e12));
  const MemoryBound copy{MemoryOp::elementwise, Bytes(500'000'000), Bytes(500'000'000)};
  CHECK(near(roofline->time(copy).time.count(), 1e-3));
}

TEST_CASE("no fitted kernel beats the roofline while efficiencies are below one") {
  const auto fitted = fitted_compute_cost(profile(), peaks());
  const auto roofline = roofline_compute_cost(peaks());
  for (std::int64_t m = 1; m < 10'000; m *= 3) {
    for (std::int64_t k = 1; k < 10'000; k *= 7) {
      const Gemm gemm{.m = m, .n = 777, .k = k, .batch = 1, .dtype = Dtype::fp16};
      CHECK(fitted->time(gemm).time > roofline->time(gemm).time);
    }
  }
}

TEST_CASE("a power limit slows arithmetic and no bandwidth") {
  MachinePeaks limited = peaks();
  limited.power = 0.5;
  const double clock = std::pow(0.5, 0.55);
  const auto slow = roofline_compute_cost(limited);
  const Gemm large{.m = 10'000, .n = 10'000, .k = 10'000, .batch = 1, .dtype = Dtype::fp16};
  CHECK(near(slow->time(large).time.count(), 2e12 / (100e12 * clock)));
  const MemoryBound copy{MemoryOp::elementwise, Bytes(500'000'000), Bytes(500'000'000)};
  CHECK(near(slow->time(copy).time.count(), 1e-3));
  const auto fitted = fitted_compute_cost(profile(), limited);
  const double ratio =
      fitted->time(large).time / fitted_compute_cost(profile(), peaks())->time(large).time;
  CHECK(ratio > 1.2);
  CHECK(ratio <= doctest::Approx(1 / clock));
  CHECK(fitted->time(large).basis == Basis::extrapolated);
}

TEST_CASE("a memory-bound kernel takes a fixed time and its bytes at the reached bandwidth") {
  const MemoryBound softmax{MemoryOp::softmax, Bytes(200'000'000), Bytes(200'000'000)};
  CHECK(near(seconds(profile(), softmax), 2e-6 + 4e8 / 400e9));
  CHECK(estimate(profile(), softmax).basis == Basis::measured);
}

TEST_CASE("a memory-bound kernel without a law borrows that of elementwise kernels") {
  const MemoryBound adam{MemoryOp::optimizer, Bytes(200'000'000), Bytes(200'000'000)};
  CHECK(near(seconds(profile(), adam), 2e-6 + 4e8 / 800e9));
  CHECK(estimate(profile(), adam).basis == Basis::extrapolated);
}

TEST_CASE("a memory-bound kernel of a backward pass reaches a share of its own") {
  Profile norms;
  norms.memory = {memory_law(MemoryOp::rms_norm, 0.5, 1)};
  MemoryBound norm{MemoryOp::rms_norm, Bytes(300'000'000), Bytes(100'000'000), true};
  CHECK(near(seconds(norms, norm), 2e-6 + 4e8 / 500e9));
  norms.memory.front().backward_efficiency = 0.25;
  CHECK(near(seconds(norms, norm), 2e-6 + 4e8 / 250e9));
  norm.backward = false;
  CHECK(near(seconds(norms, norm), 2e-6 + 4e8 / 500e9));
}

TEST_CASE("numbers handled one by one take what they take, however few their bytes") {
  Profile copies;
  copies.memory = {memory_law(MemoryOp::elementwise, 0.5)};
  MemoryBound copy{.op = MemoryOp::elementwise,
                   .read = Bytes(200'000'000),
                   .written = Bytes(200'000'000),
                   .elements = 100'000'000};
  const double streamed = 2e-6 + 4e8 / 500e9;
  CHECK(near(seconds(copies, copy), streamed));
  const double fp32 = peaks().fp32.count();
  copies.memory.front().element_rate = 1e11 / fp32;
  CHECK(near(seconds(copies, copy), 2e-6 + 1e8 / 1e11));
  copies.memory.front().element_rate = 1e12 / fp32;
  CHECK(near(seconds(copies, copy), streamed));
  copies.memory.front().element_rate = 1e11 / fp32;
  copy.elements = 0;
  CHECK(near(seconds(copies, copy), streamed));
}

TEST_CASE("a kind without a law takes that of the kind it is most like") {
  Profile laws;
  laws.memory = {memory_law(MemoryOp::elementwise, 0.8, 1),
                 memory_law(MemoryOp::activation, 0.6, 1),
                 memory_law(MemoryOp::cross_entropy, 0.4, 1)};
  const auto takes = [&](MemoryOp op) {
    return seconds(laws, MemoryBound{op, Bytes(200'000'000), Bytes(200'000'000)});
  };
  CHECK(near(takes(MemoryOp::gated_activation), 2e-6 + 4e8 / 600e9));
  CHECK(near(takes(MemoryOp::parallel_cross_entropy), 2e-6 + 4e8 / 400e9));
  const MemoryBound gated{MemoryOp::gated_activation, Bytes(200'000'000), Bytes(200'000'000)};
  CHECK(estimate(laws, gated).basis == Basis::extrapolated);
}

TEST_CASE("tensors in the L2 move faster, without a step in time") {
  Profile cached;
  cached.memory = {memory_law(MemoryOp::elementwise, 0.8, 2)};
  const auto time = [&](std::int64_t bytes) {
    return seconds(cached, MemoryBound{MemoryOp::elementwise, Bytes(bytes), Bytes(0)});
  };
  CHECK(near(time(40'000'000), 2e-6 + 4e7 / 1600e9));  // the whole L2
  CHECK(near(time(80'000'000), 2e-6 + 8e7 / 800e9));   // twice the L2: no gain left
  CHECK(near(time(60'000'000), 2e-6 + 0.75 * 6e7 / 800e9));
  double before = time(0);
  for (std::int64_t bytes = 100'000; bytes < 120'000'000; bytes += 100'000) {
    const double now = time(bytes);
    CHECK(now > before);
    CHECK(now - before < 2 * 1e5 / 800e9);
    before = now;
  }
  const MemoryBound small{MemoryOp::elementwise, Bytes(1'000), Bytes(0)};
  CHECK(estimate(cached, small).basis == Basis::extrapolated);
}

TEST_CASE("fused attention takes its FLOPs at the reached share of the peak") {
  Profile fused = profile();
  AttentionLaw law;
  law.forward = 0.7;
  law.backward = 0.6;
  law.from.basis = Basis::analytic;
  fused.attention = {law};
  Attention attention{.batch = 2,
                      .heads = 16,
                      .kv_heads = 4,
                      .query_length = 4096,
                      .key_length = 4096,
                      .head_size = 128,
                      .causal = false,
                      .backward = false,
                      .dtype = Dtype::fp16};
  const double work = 4.0 * 2 * 16 * 4096 * 4096 * 128;
  CHECK(near(seconds(fused, attention), 5e-6 + work / 70e12));
  attention.causal = true;
  CHECK(near(seconds(fused, attention), 5e-6 + 0.5 * work / 70e12));
  attention.backward = true;
  CHECK(near(seconds(fused, attention), 5e-6 + 2.5 * 0.5 * work / 60e12));
  CHECK(estimate(fused, attention).basis == Basis::analytic);
}

TEST_CASE("products of experts with few rows take longer than one product of all") {
  const Gemm one{512, 4096, 4096, 8, Dtype::fp16, true};
  const Gemm weights{4096, 4096, 512, 8, Dtype::fp16, true, true};
  Profile made = profile();
  const double plain = seconds(made, one), plain_weights = seconds(made, weights);
  made.grouped_gemm = GroupedGemmLaw{.rows = 128, .weight_rows = 256, .from = {}};
  made.grouped_gemm->from.basis = Basis::extrapolated;
  CHECK(near(seconds(made, one), 1.25 * plain));
  CHECK(near(seconds(made, weights), 1.5 * plain_weights));
  CHECK(estimate(made, one).basis == Basis::extrapolated);
  const Gemm single{4096, 4096, 4096, 1, Dtype::fp16};
  CHECK(seconds(made, single) == seconds(profile(), single));
  const Profile lent = median_profile({{made, BytesPerSecond(0)}}, BytesPerSecond(0));
  REQUIRE(lent.grouped_gemm.has_value());
  CHECK(lent.grouped_gemm->weight_rows == 256);
}

TEST_CASE("fused attention without a law runs at the efficiency of a batched GEMM") {
  const Attention attention{.batch = 2,
                            .heads = 16,
                            .kv_heads = 16,
                            .query_length = 1024,
                            .key_length = 1024,
                            .head_size = 64,
                            .causal = true,
                            .backward = false,
                            .dtype = Dtype::fp16};
  const double work = 2.0 * 2 * 16 * 1024 * 1024 * 64;
  CHECK(near(seconds(profile(), attention), 5e-6 + work / (0.8 * 0.5 * 100e12)));
  CHECK(estimate(profile(), attention).basis == Basis::extrapolated);
}

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

TEST_CASE("images stored channel by channel are copied for tensor cores") {
  Profile net = profile();
  MemoryLaw elementwise;
  elementwise.op = MemoryOp::elementwise;
  elementwise.efficiency = 0.8;
  net.memory = {elementwise};
  net.convolution = {ConvolutionLaw{}};
  Convolution conv{.batch = 10,
                   .in_channels = 64,
                   .out_channels = 128,
                   .in_height = 10,
                   .in_width = 10,
                   .out_height = 10,
                   .out_width = 10,
                   .pass = ConvolutionPass::forward,
                   .dtype = Dtype::fp16};
  const auto copies = [&](ConvolutionPass pass) {
    conv.pass = pass;
    conv.channels_first = false;
    const double without = seconds(net, conv);
    conv.channels_first = true;
    return seconds(net, conv) - without;
  };
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-6 * b; };
  // A third of 192,000 numbers of two bytes, read and written at .8 of 1 TB/s; backward .45 of
  // them.
  CHECK(close(copies(ConvolutionPass::forward), 2 * 0.33 * 192000 * 2 / 0.8e12));
  CHECK(close(copies(ConvolutionPass::weight_gradient), 2 * 0.45 * 192000 * 2 / 0.8e12));
  net.convolution[0].channels_first = true;  // the law was measured so
  CHECK(copies(ConvolutionPass::forward) == 0);
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

TEST_CASE("time never falls as a GEMM grows") {
  const auto cost = fitted_compute_cost(profile(), peaks());
  Seconds before{};
  for (std::int64_t m = 1; m < 20'000; m += 37) {
    const Seconds now =
        cost->time(Gemm{.m = m, .n = 512, .k = 512, .batch = 1, .dtype = Dtype::fp16}).time;
    CHECK(now > before);
    before = now;
  }
}
