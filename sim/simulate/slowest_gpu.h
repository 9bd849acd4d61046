// What it costs that GPUs are not equally fast.
#pragma once

namespace trainyard::simulate {

// GPUs of a job wait for the slowest of them: how many do, and how many times as long kernels are
// expected to take on that one as on the mean one.
struct SlowestGpu {
  int gpus = 1;
  double slowdown = 1;
};

// The expected largest of `count` independent standard normal numbers: 0, 0.564, 1.03, 1.42 for 1,
// 2, 4, 8; exact at powers of two, straight between them. Requires: 1 <= count <= 2^20. Source:
// Tippett, Biometrika 17, 1925; integrals of n x phi(x) Phi(x)^(n-1).
double expected_largest(int count);

}  // namespace trainyard::simulate
