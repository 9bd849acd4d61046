// What a law says beyond the sizes it was fitted on: the same time, but not the same basis.
#include <doctest/doctest.h>

#include <string>

#include "sim/cost/profile.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

MachinePeaks peaks() {
  return {.fp32 = 10_TFLOPs,
          .tf32 = 50_TFLOPs,
          .fp16 = 100_TFLOPs,
          .bf16 = 100_TFLOPs,
          .fp8 = {},
          .memory_bandwidth = 1000_GBps,
          .l2 = Bytes(40'000'000)};
}

GemmLaw gemm_law() {
  GemmLaw law;
  law.dtype = Dtype::bf16;
  law.fixed = Seconds(5e-6);
  law.compute_efficiency = 0.8;
  law.memory_efficiency = 0.5;
  law.exponent = 2;
  law.m = {16, 65536};
  law.n = {8, 131072};
  law.k = {32, 32768};
  law.from.basis = Basis::interpolated;
  return law;
}

Profile profile() {
  Profile made;
  made.gemm = {gemm_law()};
  made.batched_gemm_from.basis = Basis::interpolated;
  return made;
}

Estimate estimate(const Profile& from, const Kernel& kernel) {
  return fitted_compute_cost(from, peaks())->time(kernel);
}

Gemm gemm(std::int64_t m, std::int64_t n, std::int64_t k, Dtype dtype = Dtype::bf16) {
  return {.m = m, .n = n, .k = k, .batch = 1, .dtype = dtype};
}

AttentionLaw attention_law(std::int64_t head, std::optional<bool> causal, double share) {
  AttentionLaw law;
  law.head_size = head;
  law.causal = causal;
  law.forward = law.backward = share;
  law.from.basis = Basis::interpolated;
  return law;
}

Attention attention(std::int64_t head, bool causal) {
  Attention made;
  made.batch = made.heads = made.kv_heads = 8;
  made.query_length = made.key_length = 4096;
  made.head_size = head;
  made.causal = causal;
  made.dtype = Dtype::bf16;
  return made;
}

// The share of the peak at which attention was priced; t0 is 5 us.
double share(const Estimate& estimate, const Attention& kernel) {
  return flops(kernel).count() / (estimate.time.count() - 5e-6) / 100e12;
}

}  // namespace

TEST_CASE("attention has the law of its kernel, else says whose it has") {
  Profile p = profile();
  AttentionLaw fa2 = attention_law(128, std::nullopt, 0.5);
  fa2.kernel = AttentionKernel::fa2;
  AttentionLaw cudnn = attention_law(128, std::nullopt, 0.7);
  cudnn.kernel = AttentionKernel::cudnn;
  AttentionLaw math = attention_law(128, std::nullopt, 0.1);
  math.kernel = AttentionKernel::sdpa_math;
  p.attention = {fa2, cudnn, math};
  Attention kernel = attention(128, true);
  CHECK(share(estimate(p, kernel), kernel) == about(0.5));  // the first law
  for (const auto& [named, reached] :
       {std::pair{AttentionKernel::fa2, 0.5}, std::pair{AttentionKernel::cudnn, 0.7},
        std::pair{AttentionKernel::sdpa_math, 0.1}}) {
    kernel.kernel = named;
    CHECK(share(estimate(p, kernel), kernel) == about(reached));
    CHECK(estimate(p, kernel).basis == Basis::interpolated);
  }
  // What has no law is as good as its neighbour, whatever other laws would fit better.
  kernel.kernel = AttentionKernel::triton;
  kernel.head_size = 64;
  CHECK(share(estimate(p, kernel), kernel) == about(0.5));
  CHECK(estimate(p, kernel).basis == Basis::extrapolated);
  CHECK(estimate(p, kernel).reach == "no law of triton, that of fa2 instead");
  // Scores in memory are no guess for a kernel without them, nor the other way round.
  p.attention = {math};
  CHECK(estimate(p, kernel).reach == "no law of attention, that of batched GEMMs instead");
  p.attention = {fa2};
  kernel.kernel = AttentionKernel::sdpa_math;
  CHECK(estimate(p, kernel).reach == "no law of attention, that of batched GEMMs instead");
  // A law without a name holds for all.
  p.attention = {attention_law(0, std::nullopt, 0.4)};
  CHECK(share(estimate(p, kernel), kernel) == about(0.4));
  CHECK(estimate(p, kernel).basis == Basis::interpolated);
}

// T = t0 + F (1 + l / k) / (e P): a query sees half as many keys under a causal mask, and 64 at
// most in a window of 64, and with l = 64 the work of a key per query is doubled there.
TEST_CASE("a query costs its keys and a start") {
  Profile p = profile();
  p.attention = {attention_law(128, std::nullopt, 0.5)};
  p.attention[0].forward_keys = 64;
  p.attention[0].backward_keys = 128;
  Attention kernel = attention(128, false);
  CHECK(share(estimate(p, kernel), kernel) == about(0.5 / (1 + 64 / 4096.0)));
  kernel.causal = true;
  CHECK(share(estimate(p, kernel), kernel) == about(0.5 / (1 + 64 / 2048.0)));
  kernel.backward = true;
  CHECK(share(estimate(p, kernel), kernel) == about(0.5 / (1 + 128 / 2048.0)));
  kernel.backward = false;
  kernel.query_length = kernel.key_length = 1 << 20;
  kernel.window = 64;
  CHECK(share(estimate(p, kernel), kernel) == about(0.25).within(1e-3));
}

// Libraries compile head sizes of 32, 64, 96, ...: 72 and 80 run as 96, and what is no multiple of
// 8 is copied before, at the bandwidth of elementwise kernels.
TEST_CASE("a head size between those that are compiled runs as the next one") {
  Profile p = profile();
  p.attention = {attention_law(128, std::nullopt, 0.6)};
  const auto share_of = [&](std::int64_t head) {
    const Attention kernel = attention(head, true);
    return share(estimate(p, kernel), kernel);
  };
  CHECK(share_of(128) == about(0.6));
  CHECK(share_of(96) == about(0.6));
  CHECK(share_of(80) == about(0.6 * 80 / 96));
  CHECK(share_of(72) == about(0.6 * 72 / 96));
  CHECK(share_of(160) == about(0.6));
  CHECK(share_of(108) < 0.999 * 0.6 * 108 / 128);
  CHECK(share_of(104) == about(0.6 * 104 / 128));
}

TEST_CASE("a GEMM is interpolated inside the fitted box and extrapolated outside of each face") {
  CHECK(estimate(profile(), gemm(16, 8, 32)).basis == Basis::interpolated);
  CHECK(estimate(profile(), gemm(65536, 131072, 32768)).basis == Basis::interpolated);
  CHECK(estimate(profile(), gemm(65536, 131072, 32768)).reach.empty());
  const auto outside = [](const Gemm& kernel, const std::string& why) {
    const Estimate found = estimate(profile(), kernel);
    CHECK(found.basis == Basis::extrapolated);
    CHECK(found.reach == why);
  };
  outside(gemm(15, 8, 32), "m is below the 16 fitted");
  outside(gemm(65537, 8, 32), "m is beyond the 65536 fitted");
  outside(gemm(16, 7, 32), "n is below the 8 fitted");
  outside(gemm(16, 131073, 32), "n is beyond the 131072 fitted");
  outside(gemm(16, 8, 31), "k is below the 32 fitted");
  outside(gemm(16, 8, 32769), "k is beyond the 32768 fitted");
  outside(gemm(16, 8, 32, Dtype::fp32), "no law of fp32, that of bf16 instead");
  CHECK(estimate(profile(), gemm(16, 8, 32, Dtype::fp16)).basis ==
        Basis::interpolated);  // same unit
}

TEST_CASE("the time itself does not jump where the box ends") {
  const Profile p = profile();
  for (const std::int64_t m : {16, 65536}) {
    const double below = estimate(p, gemm(m - 1, 4096, 4096)).time.count();
    const double at = estimate(p, gemm(m, 4096, 4096)).time.count();
    const double above = estimate(p, gemm(m + 1, 4096, 4096)).time.count();
    CHECK(below < at);
    CHECK(at < above);
    CHECK(above / below < 1 + 3.0 / static_cast<double>(m));
  }
}

TEST_CASE("a law without ranges keeps its basis at any size") {
  Profile p = profile();
  p.gemm[0].m = p.gemm[0].n = p.gemm[0].k = {};
  CHECK(estimate(p, gemm(1, 1, 1)).basis == Basis::interpolated);
  CHECK(estimate(p, gemm(10'000'000, 1, 1)).basis == Basis::interpolated);
}

TEST_CASE("a measured shape is measured, its neighbours are interpolated by its residual") {
  Profile plain = profile();
  Profile table = plain;
  table.gemm[0].residuals = {{4096, 4096, 4096, 1, 1.2}};
  const double law = estimate(plain, gemm(4096, 4096, 4096)).time.count();
  const Estimate exact = estimate(table, gemm(4096, 4096, 4096));
  CHECK(exact.time.count() == about(1.2 * law));
  CHECK(exact.basis == Basis::measured);
  const Estimate beside = estimate(table, gemm(4100, 4096, 4096));
  CHECK(beside.basis == Basis::interpolated);
  CHECK(beside.time.count() ==
        about(1.2 * estimate(plain, gemm(4100, 4096, 4096)).time.count()).within(1e-4));
  // The other 16-bit type runs on the same unit: corrected, but not measured.
  const Estimate twin = estimate(table, gemm(4096, 4096, 4096, Dtype::fp16));
  CHECK(twin.time == exact.time);
  CHECK(twin.basis == Basis::interpolated);
  // fp32 runs elsewhere.
  CHECK(estimate(table, gemm(4096, 4096, 4096, Dtype::fp32)).time ==
        estimate(plain, gemm(4096, 4096, 4096, Dtype::fp32)).time);
  // A measured shape outside of the box of the law is measured all the same.
  table.gemm[0].m = {16, 1024};
  CHECK(estimate(table, gemm(4096, 4096, 4096)).basis == Basis::measured);
  CHECK(estimate(table, gemm(4095, 4096, 4096)).basis == Basis::extrapolated);
}

TEST_CASE("attention takes the law of its head size and masking, else the nearest") {
  Profile p = profile();
  p.attention = {attention_law(64, true, 0.5), attention_law(128, true, 0.7),
                 attention_law(64, false, 0.6)};
  const auto priced = [&](std::int64_t head, bool causal, double expected, Basis basis) {
    const Attention kernel = attention(head, causal);
    const Estimate found = estimate(p, kernel);
    CAPTURE(head);
    CHECK(share(found, kernel) == about(expected));
    CHECK(found.basis == basis);
    CHECK(found.reach.empty() == (basis == Basis::interpolated));
  };
  priced(64, true, 0.5, Basis::interpolated);
  priced(64, false, 0.6, Basis::interpolated);
  priced(128, true, 0.7, Basis::interpolated);
  priced(80, true, 0.7 * 80 / 96, Basis::extrapolated);  // runs as 96, nearer to 128
  priced(112, true, 0.7 * 112 / 128, Basis::extrapolated);
  priced(256, true, 0.7, Basis::extrapolated);
  priced(128, false, 0.7, Basis::extrapolated);  // the head size counts for more than the mask
  p.attention.push_back(attention_law(0, std::nullopt, 0.4));  // any: better than a wrong one
  priced(80, true, 0.4 * 80 / 96, Basis::interpolated);
  priced(64, true, 0.5, Basis::interpolated);
}

TEST_CASE("attention has fixed times of its own, by pass, and a range of lengths") {
  Profile p = profile();
  AttentionLaw law = attention_law(128, std::nullopt, 0.7);
  law.forward_fixed = Seconds(4e-6);
  law.length = {512, 8192};
  p.attention = {law};
  Attention kernel = attention(128, true);
  const double work = flops(kernel).count() / (0.7 * 100e12);
  CHECK(estimate(p, kernel).time.count() == about(4e-6 + work));
  kernel.backward = true;  // t0 of the GEMM law
  CHECK(estimate(p, kernel).time.count() == about(5e-6 + work * 2.5));
  CHECK(estimate(p, kernel).basis == Basis::interpolated);
  kernel.query_length = 8193;
  CHECK(estimate(p, kernel).reach == "length is beyond the 8192 fitted");
  kernel.query_length = 511;
  CHECK(estimate(p, kernel).reach == "length is below the 512 fitted");
  // Another wide type has no law of its own here and is worth its batched GEMM.
  p.attention[0].dtype = Dtype::bf16;
  kernel.dtype = Dtype::fp32;
  CHECK(estimate(p, kernel).basis == Basis::extrapolated);
}

TEST_CASE("a memory-bound kernel is extrapolated outside of the fitted bytes only") {
  MemoryLaw law;
  law.fixed = Seconds(2e-6);
  law.efficiency = 0.8;
  law.l2_speedup = 2;
  law.from.basis = Basis::measured;
  const auto of = [](const MemoryLaw& l, std::int64_t bytes) {
    Profile p;
    p.memory = {l};
    return estimate(p, MemoryBound{MemoryOp::elementwise, Bytes(bytes), Bytes(0)});
  };
  CHECK(of(law, 1'000'000).basis == Basis::extrapolated);  // the L2 was not part of the fit
  law.least = Bytes(100'000);
  law.most = Bytes(1'000'000'000);
  CHECK(of(law, 1'000'000).basis == Basis::measured);
  CHECK(of(law, 100'000).basis == Basis::measured);
  CHECK(of(law, 1'000'000'000).basis == Basis::measured);
  CHECK(of(law, 99'999).reach == "fewer bytes than the 97.7 KiB fitted");
  CHECK(of(law, 1'000'000'001).reach == "more bytes than the 954 MiB fitted");
  CHECK(of(law, 99'999).time < of(law, 100'000).time);
}

TEST_CASE("a convolution of a known network is measured at a measured batch") {
  Profile p = profile();
  ConvolutionLaw law;
  law.dtype = Dtype::bf16;
  law.from.basis = Basis::interpolated;
  Convolution shape{.batch = 32,
                    .in_channels = 64,
                    .out_channels = 64,
                    .in_height = 56,
                    .in_width = 56,
                    .out_height = 56,
                    .out_width = 56,
                    .kernel_height = 3,
                    .kernel_width = 3,
                    .groups = 1,
                    .pass = ConvolutionPass::forward,
                    .dtype = Dtype::bf16};
  p.convolution = {law};
  const Seconds plain = estimate(p, shape).time;
  CHECK(estimate(p, shape).basis == Basis::interpolated);
  p.convolution[0].residuals = {{shape, 1.5}};
  CHECK(estimate(p, shape).basis == Basis::measured);
  CHECK(estimate(p, shape).time.count() == about(1.5 * plain.count()));
  shape.batch = 64;
  CHECK(estimate(p, shape).basis == Basis::extrapolated);
  shape.batch = 32;
  shape.out_channels = 65;
  CHECK(estimate(p, shape).basis == Basis::interpolated);
}

TEST_CASE("collectives and messages are extrapolated outside of the fitted buffers") {
  Profile p;
  CollectiveLaw law;
  law.ranks = 8;
  law.start = Seconds(40e-6);
  law.bandwidth = BytesPerSecond(100e9);
  law.from.basis = Basis::interpolated;
  law.least = Bytes(1024);
  law.most = Bytes(1'000'000'000);
  p.collectives = {law};
  PointToPointLaw message{true, Seconds(1e-5), BytesPerSecond(200e9), Bytes(8), Bytes(1024), {}};
  message.from.basis = Basis::measured;
  p.point_to_point = {message};
  const auto cost = fitted_message_cost(p);
  GroupShape shape;
  shape.ranks = shape.ranks_per_server = 8;
  shape.intra_bandwidth = BytesPerSecond(300e9);
  const auto of = [&](std::int64_t bytes, int ranks) {
    shape.ranks = shape.ranks_per_server = ranks;
    return cost->collective(CollectiveKind::all_reduce, Bytes(bytes), shape);
  };
  CHECK(of(1024, 8).basis == Basis::interpolated);
  CHECK(of(1'000'000'000, 8).basis == Basis::interpolated);
  CHECK(of(1023, 8).basis == Basis::extrapolated);
  CHECK(of(1'000'000'001, 8).reach == "more bytes than the 954 MiB fitted");
  CHECK(of(1'000'000'001, 4).basis == Basis::analytic);  // by a rule already
  shape.ranks = shape.ranks_per_server = 2;
  CHECK(cost->point_to_point(Bytes(1024), shape).basis == Basis::measured);
  CHECK(cost->point_to_point(Bytes(1025), shape).basis == Basis::extrapolated);
}

TEST_CASE("constants of another machine are extrapolated and say of which") {
  Profile p = profile();
  p.gemm[0].from.basis = Basis::extrapolated;
  p.gemm[0].from.machine = "V100";
  CHECK(estimate(p, gemm(64, 64, 64)).reach == "constants of another machine (V100)");
}

TEST_CASE("a profile for another GPU extrapolates everything and has no measured shapes") {
  Profile p = profile();
  p.gemm[0].residuals = {{64, 64, 64, 1, 1.2}};
  p.memory = {{MemoryOp::softmax, Seconds(2e-6), 0.8, {}, 1, {}, {}, {}, {}}};
  p.memory[0].from.basis = Basis::measured;
  p.attention = {attention_law(64, true, 0.5)};
  p.point_to_point = {{true, Seconds(1e-5), BytesPerSecond(200e9), {}, {}, {}}};
  p.point_to_point[0].from.basis = Basis::analytic;
  const Profile other = for_other_gpu(p);
  CHECK(estimate(p, gemm(64, 64, 64)).basis == Basis::measured);
  CHECK(estimate(other, gemm(64, 64, 64)).basis == Basis::extrapolated);
  CHECK(estimate(other, attention(64, true)).basis == Basis::extrapolated);
  const MemoryBound softmax{MemoryOp::softmax, Bytes(1 << 30), Bytes(0)};
  CHECK(estimate(other, softmax).basis == Basis::extrapolated);
  CHECK(estimate(other, softmax).time == estimate(p, softmax).time);
  CHECK(other.point_to_point[0].from.basis == Basis::analytic);  // less than extrapolated already
}
