// The figures of the calibration page as SVG. Pure functions from records to text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "calibrate/fit/fit.h"

namespace trainyard::fit {

// "fitted", "held-out", "rejected", "unused": class of a point, and word of the legend.
std::string_view fate_class(SampleFate fate);

// Measured time across, fitted time up, both logarithmic, with the diagonal and a tenth to each
// side. Empty without a record that has a fitted time.
std::string scatter_chart(const std::vector<const FitRecord*>& records);

// Size across, fitted / measured - 1 up, cut off at -60 % and 60 %. Empty as above, and if all have
// the same size.
std::string residual_chart(const std::vector<const FitRecord*>& records);

// "1.2 us", "35 ms": three significant digits.
std::string time_text(double microseconds);

}  // namespace trainyard::fit
