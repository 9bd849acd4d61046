// What it costs that servers are not equally fast.
#pragma once

namespace trainyard::simulate {

// All servers of a job wait for the slowest: how many there are, and how many times as long kernels
// are expected to take on the slowest as on the mean one.
struct SlowestServer {
  int servers = 1;
  double slowdown = 1;
};

// The expected largest of `count` independent standard normal numbers: 0, 0.564, 1.03, 1.42 for 1,
// 2, 4, 8; exact at powers of two, straight between them. Requires: 1 <= count <= 2^17. Source:
// Tippett, Biometrika 17, 1925; integrals of n x phi(x) Phi(x)^(n-1).
double expected_largest(int count);

}  // namespace trainyard::simulate
