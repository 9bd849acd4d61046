// How far off an estimate may be: the errors of published steps like it, which a command measured
// (./dev validate --write) and configs/accuracy/steps.json holds. Nothing is assumed of their
// distribution.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::simulate {

// What errors depend on, as far as there are enough steps to tell.
struct EstimateClass {
  std::string network;      // as Network::words() says it: "a transformer"
  bool profile = false;     // fitted on the job's GPU
  bool one_server = false;  // nothing crosses the network between servers
};

// One published step: predicted / measured - 1.
struct StepError {
  std::string set;  // of configs/validation
  EstimateClass of;
  double error = 0;
};

// Of 8 in 10 steps of the class that was compared: the estimate over one plus the tenth and the
// ninetieth percentile of their errors.
struct Interval {
  Duration low{}, high{};
  int steps = 0;
  std::string of;          // "a transformer, a profile of its GPU, several servers"
  bool is_of_kind = true;  // false: no class of this network has enough steps
};

// Source: docs/validation.md. Throws ScenarioError if the file is wrong.
std::vector<StepError> read_errors(const std::string& path);

// By the narrowest class that has ten steps: of network, profile and servers; network and profile;
// the network; all. Nothing if there are not even ten in all.
std::optional<Interval> interval(const std::vector<StepError>& errors, const EstimateClass& of,
                                 Duration step);

// "a transformer, a profile of its GPU, several servers".
std::string describe(const EstimateClass& of);

// "18.5 s to 23.2 s: 8 of 10 like it"; where the estimate is not between the two, "... took longer"
// or "... were faster".
std::string describe(const Interval& interval, Duration step);

}  // namespace trainyard::simulate
