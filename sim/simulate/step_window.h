// What a step takes of a run: all of it, or without a flush between steps one round of several.
#pragma once

#include <algorithm>

#include "sim/base/units.h"

namespace trainyard::simulate {

// While the step runs, a bound that has not been reached is Duration::max().
struct StepWindow {
  Duration begin{}, end = Duration::max();

  Duration length() const { return end - begin; }
  // How much of [from, to) lies in it.
  Duration part(Duration from, Duration to) const {
    return std::max(Duration(0), std::min(to, end) - std::max(from, begin));
  }
};

}  // namespace trainyard::simulate
