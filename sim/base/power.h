// A power and a logarithm that give the same bits on every machine.
#pragma once

namespace trainyard {

// base^exponent by + - * / only, so that no libm stands between a scenario and a Duration.
// Relative error below 1e-14. Requires: base > 0 and finite, |exponent| <= 64, no overflow.
double power(double base, double exponent);

// log2 x by + - * / only. Exact for powers of two, otherwise an error below 1e-15 of the larger of
// the result and 1. Requires: x > 0, finite and not subnormal.
double binary_log(double x);

}  // namespace trainyard
