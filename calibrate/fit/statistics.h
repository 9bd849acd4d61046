// Order statistics and rounding that the fits share.
#pragma once

#include <vector>

namespace trainyard::fit {

double median(std::vector<double> values);  // of none: 0

// 1.4826 times the median distance from the median: the standard deviation of normal noise, and
// not moved by a minority of outliers.
double scaled_mad(const std::vector<double>& values);

// |fitted / measured - 1| over the cases, in percent.
struct Errors {
  int count = 0;
  double mape = 0, median = 0, worst = 0;
};
Errors errors_of(const std::vector<double>& relative);  // fitted / measured - 1

// The nearest decimal of six significant digits: constants are not known better, and the last bits
// of a fit do not reach the file.
double six_digits(double value);

}  // namespace trainyard::fit
