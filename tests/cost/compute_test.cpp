#include <doctest/doctest.h>

#include "models/layer/peak.h"
#include "sim/cost/compute_laws.h"
#include "tests/cost/compute_support.h"
#include "tests/support/about.h"

using namespace trainyard;
using namespace trainyard::literals;

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

TEST_CASE("products whose rows begin at few bytes reach a share of both rates") {
  Profile some = profile();
  some.gemm.front().unaligned = GemmUnaligned{0.25, 0.5, 0.8};
  CHECK(seconds(some, kGemm) == seconds(profile(), kGemm));
  Gemm odd = kGemm;
  const auto slower = [&](std::int64_t columns, double share) {
    odd.n = columns;
    return near(seconds(some, odd) - 5e-6, (seconds(profile(), odd) - 5e-6) / share);
  };
  CHECK(slower(2049, 0.25));
  CHECK(slower(2050, 0.5));
  CHECK(slower(2052, 0.8));
  CHECK(slower(2056, 1));
  // CUDA cores do not mind; other types of tensor cores do, by the bytes of theirs.
  odd.n = 2049;
  odd.dtype = Dtype::fp32;
  CHECK(seconds(some, odd) == seconds(profile(), odd));
  odd.dtype = Dtype::tf32;
  CHECK(slower(2049, 0.5));
  CHECK(slower(2050, 0.8));
  CHECK(slower(2052, 1));
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
  CHECK(ratio <= about(1 / clock));
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

TEST_CASE("equal kernels that move something together have a fixed time each") {
  Profile copies;
  copies.memory = {memory_law(MemoryOp::elementwise, 0.5)};
  for (const std::int64_t kernels : {1, 8}) {
    const MemoryBound copy{.op = MemoryOp::elementwise,
                           .read = Bytes(200'000'000),
                           .written = Bytes(200'000'000),
                           .kernels = kernels};
    CHECK(near(seconds(copies, copy), static_cast<double>(kernels) * 2e-6 + 4e8 / 500e9));
  }
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
  CHECK(near(takes(MemoryOp::varying_gated_activation), 2e-6 + 4e8 / 600e9));
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

TEST_CASE(
    "dropout of attention costs a random number for each score, in the kernel that has a law") {
  Profile made = profile();
  AttentionLaw law;
  law.forward = law.backward = 0.5;
  law.from.basis = Basis::interpolated;
  made.attention = {law};
  Attention attention{.batch = 2,
                      .heads = 16,
                      .kv_heads = 16,
                      .query_length = 1024,
                      .key_length = 1024,
                      .head_size = 64,
                      .causal = true,
                      .kernel = AttentionKernel::cudnn};
  const double plain = seconds(made, attention);
  attention.dropout = true;
  CHECK(seconds(made, attention) == plain);
  made.attention_dropout = AttentionDropoutLaw{.forward = 0.02, .backward = 0.04, .from = {}};
  made.attention_dropout->from.basis = Basis::extrapolated;
  const double numbers = 2.0 * 16 * 1024 * 1024 / 2, fp32 = peaks().fp32.count();
  CHECK(near(seconds(made, attention), plain + numbers / (0.02 * fp32)));
  CHECK(estimate(made, attention).basis == Basis::extrapolated);
  attention.causal = false;
  const double full = seconds(made, attention);
  attention.dropout = false;
  CHECK(near(full, seconds(made, attention) + 2 * numbers / (0.02 * fp32)));
  attention.backward = true;
  const double backward = seconds(made, attention);
  attention.dropout = true;
  CHECK(near(seconds(made, attention), backward + 2 * numbers / (0.04 * fp32)));
  attention.kernel = AttentionKernel::fa2;  // nobody measured its own
  CHECK(near(seconds(made, attention), backward));
  // Of those of the first one's kernel.
  Profile other = made, alike = made;
  other.attention_dropout->kernel = AttentionKernel::fa2;
  other.attention_dropout->backward = 0.2;
  alike.attention_dropout->backward = 0.08;
  const BytesPerSecond none(0);
  const Profile lent = median_profile({{made, none}, {other, none}, {alike, none}}, none);
  REQUIRE(lent.attention_dropout.has_value());
  CHECK(lent.attention_dropout->kernel == AttentionKernel::cudnn);
  CHECK(lent.attention_dropout->backward == about(0.06));
  CHECK(for_other_gpu(made).attention_dropout->from.basis == Basis::extrapolated);
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

TEST_CASE("products with scales for parts of operands take their own time where one is known") {
  Profile made = profile();
  made.gemm.push_back(gemm_law(Dtype::fp8));
  made.gemm.back().row_scaled = 1.25;
  MachinePeaks chip = peaks();
  chip.fp8 = 2 * chip.fp16;
  const auto cost = fitted_compute_cost(made, chip);
  Gemm gemm{4096, 4096, 4096, 1, Dtype::fp8};
  const double whole = cost->time(gemm).time.count();
  gemm.scaling = Scaling::row;
  CHECK(near(cost->time(gemm).time.count(), 1.25 * whole));
  CHECK(cost->time(gemm).basis == Basis::interpolated);
  gemm.scaling = Scaling::block;
  CHECK(near(cost->time(gemm).time.count(), whole));
  CHECK(cost->time(gemm).basis == Basis::extrapolated);
}

TEST_CASE("casts without a law move as fast as element-wise kernels") {
  for (const MemoryOp op : {MemoryOp::cast, MemoryOp::amax}) {
    const MemoryBound kernel{op, Bytes(1 << 30), Bytes(1 << 29)};
    const MemoryBound like{MemoryOp::elementwise, kernel.read, kernel.written};
    CHECK(seconds(profile(), kernel) == seconds(profile(), like));
    CHECK(estimate(profile(), kernel).basis == Basis::extrapolated);
  }
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
