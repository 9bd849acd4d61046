// One law on its cases: rejection, deal, fit, rejection of outliers, second fit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/fit/fit.h"
#include "calibrate/fit/holdout.h"
#include "calibrate/fit/least_squares.h"
#include "calibrate/fit/samples/samples.h"

namespace trainyard::fit {

// Rules of rejection. A case whose repeats scatter more than this says little about a law.
inline constexpr double kMostSpread = 0.25;  // (third - first quartile) / median
// A fitted case is an outlier if its residual ln(law / measured) is further from the median than
// this many scaled MADs and than the least of them, and if no more than a tenth of the cases are: a
// law that is wrong for more is a wrong law, and that must show. Held-out cases are never rejected
// for their residual.
inline constexpr double kOutlierMads = 6;
inline constexpr double kLeastOutlier = 0.405;  // half as long again
inline constexpr double kMostOutliers = 0.1;

struct LawTask {
  std::vector<const Sample*> samples;
  std::vector<Coordinates> places;  // of each sample, for the deal
  double distance = 0.1;
  std::vector<double> inner;  // a further coordinate: some of it is held out of each fitted place
  std::vector<Constant> constants;
  // Seconds of the given samples (indices into `samples`).
  std::function<std::vector<double>(const Constants&, const std::vector<std::size_t>&)> predict;
  double held_out = 0.3;  // share of the samples
  int fewest = 8;         // fewer are fitted all, and the error given is that of the fit
};

struct LawFit {
  Constants values;  // six significant digits; near a logarithmic lower bound: 0
  std::vector<SampleFate> fates;
  std::vector<std::string> reasons;
  Split split;
  bool refused_outliers = false;  // too many for outliers: the law does not describe the cases

  std::vector<std::size_t> with(SampleFate fate) const;
};

// Requires: at least one sample.
LawFit fit_law(const LawTask& task);

// Mean |law / measured - 1| of fitted cases under constants fitted without their cluster, four
// groups of clusters in turn: to choose between laws without asking the held-out cases.
double left_out_error(const LawTask& task, const LawFit& fit);

// A positive constant between least and most, searched by its logarithm. `start` inside.
Constant logarithmic(double least, double most, double start);
// A time in seconds from "nothing" to a tenth of a second.
Constant start_up(double guess);

}  // namespace trainyard::fit
