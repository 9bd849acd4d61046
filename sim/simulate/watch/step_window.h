// What a step takes of a run: all of it, or without a flush between steps one round of several, or
// where ranks go at their own pace many steps of each.
#pragma once

#include <algorithm>

#include "sim/base/units.h"

namespace trainyard::simulate {

// While the step runs, a bound that has not been reached is Duration::max().
struct StepWindow {
  Duration begin{}, end = Duration::max();
  double steps = 1;  // that a rank does in it, on average

  Duration length() const { return end - begin; }
  // Of one step.
  Duration step() const { return steps == 1 ? length() : to_duration(Seconds(length()) / steps); }
  // How much of [from, to) lies in it.
  Duration part(Duration from, Duration to) const {
    return std::max(Duration(0), std::min(to, end) - std::max(from, begin));
  }
};

}  // namespace trainyard::simulate
