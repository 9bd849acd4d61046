// A machine of round figures and laws of round constants, which the tests of kernels share.
#pragma once

#include <cmath>

#include "sim/cost/profile.h"
#include "tests/support/rooms.h"

namespace trainyard {

using namespace literals;

// Round figures: 100 TFLOP/s in 16 bits, 10 in fp32, 1 TB/s.
inline MachinePeaks peaks() {
  return {.fp32 = 10_TFLOPs,
          .tf32 = 50_TFLOPs,
          .fp16 = 100_TFLOPs,
          .bf16 = 100_TFLOPs,
          .fp8 = {},
          .memory_bandwidth = 1000_GBps,
          .l2 = Bytes(40'000'000)};
}

inline GemmLaw gemm_law(Dtype dtype, double p = 2) {
  GemmLaw law;
  law.dtype = dtype;
  law.fixed = Seconds(5e-6);
  law.compute_efficiency = 0.8;
  law.memory_efficiency = 0.5;
  law.exponent = p;
  law.from.basis = Basis::interpolated;
  return law;
}

inline MemoryLaw memory_law(MemoryOp op, double efficiency, double l2_speedup = 1) {
  MemoryLaw law;
  law.op = op;
  law.fixed = Seconds(2e-6);
  law.efficiency = efficiency;
  law.l2_speedup = l2_speedup;
  law.from.basis = Basis::measured;
  return law;
}

inline Profile profile() {
  Profile made;
  made.gemm = {gemm_law(Dtype::fp16)};
  made.batched_gemm_efficiency = 0.5;
  made.batched_gemm_from.basis = Basis::analytic;
  made.memory = {memory_law(MemoryOp::elementwise, 0.8), memory_law(MemoryOp::softmax, 0.4)};
  return made;
}

inline Estimate estimate(const Profile& from, const Kernel& kernel) {
  return fitted_compute_cost(from, peaks())->time(kernel);
}
inline double seconds(const Profile& from, const Kernel& kernel) {
  return estimate(from, kernel).time.count();
}
inline bool near(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::abs(b);
}

inline constexpr Gemm kGemm{.m = 1024, .n = 2048, .k = 512, .batch = 1, .dtype = Dtype::fp16};

}  // namespace trainyard
