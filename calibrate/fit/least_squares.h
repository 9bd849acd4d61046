// Robust nonlinear least squares for laws of a few constants.
//
// Minimises sum_i 2 f^2 (sqrt(1 + (r_i / f)^2) - 1), r_i = ln(predicted_i / measured_i), f = 0.1:
// quadratic in small residuals, linear in large ones (soft-L1), and relative, because a law has to
// serve microseconds and seconds alike.
//
//   Method: Gauss-Newton with Levenberg-Marquardt damping on the reweighted residuals, Jacobian by
//   central differences. A bounded constant v in [a, b] is written a (b/a)^s or a + (b - a) s with
//   s = (1 + sin t) / 2, so that the search over t has no bounds. Started from the middle and from
//   fixed pseudo-random places; the best end wins.
//   Source: Moré, The Levenberg-Marquardt algorithm, 1978; soft-L1 as in Triggs et al., Bundle
//   adjustment, 2000; the transformation as in MINUIT (James, Roos 1975).
//   Invariant: the result depends on the order of the samples only by rounding; callers sort them.
#pragma once

#include <functional>
#include <vector>

namespace trainyard::fit {

struct Constant {
  double least = 0, most = 1;  // least < most
  double start = 0.5;          // inside
  bool logarithmic = false;    // requires least > 0
};

using Constants = std::vector<double>;
// Predictions of all samples, positive and finite for all constants inside their bounds.
using Law = std::function<std::vector<double>(const Constants&)>;

struct Solution {
  Constants values;
  double cost = 0;  // the sum above
};

// Requires: as many predictions as measured values, all positive.
Solution least_squares(const Law& law, const std::vector<double>& measured,
                       const std::vector<Constant>& constants, int starts = 4);

}  // namespace trainyard::fit
