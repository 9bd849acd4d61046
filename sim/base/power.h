// A power that gives the same bits on every machine.
#pragma once

namespace trainyard {

// base^exponent by + - * / only, so that no libm stands between a scenario and a Duration.
// Relative error below 1e-14. Requires: base > 0 and finite, |exponent| <= 64, no overflow.
double power(double base, double exponent);

}  // namespace trainyard
