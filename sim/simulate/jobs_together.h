// Jobs that share a cluster: their casts are one, and each repeats its step for as long as the
// first is watched.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "sim/base/out_of_range.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// Steps of this other job are too long or too short beside those of the first.
struct UnlikeSteps : OutOfRange {
  UnlikeSteps(std::size_t job, const std::string& text) : OutOfRange(text), other(job) {}
  std::size_t other;  // into Job::others
};

// The step of a job beside Job::others, all of which begin at one instant: on average over the
// steps between the first and the last, at least eight, and so many that the others do four.
// Requires: others whose plans hold one step (plan::Rounds). Throws UnlikeSteps if steps differ by
// more than kMostStepRatio.
std::unique_ptr<Step> simulate_together(const Job& job, const StepOptions& options);
inline constexpr int kMostStepRatio = 64;

}  // namespace trainyard::simulate
