// How a job that does not fit its memory would: changes of its scenario, each simulated. Values for
// the writers of cli/report; the search is sim/search/ways_to_fit.h.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::simulate {

// A value of the scenario that changes, as JSON.
struct ChangedValue {
  std::string pointer;   // "/training/recompute"
  std::string what;      // "recomputation"; empty: it only goes with another (dp with tp)
  std::string from, to;  // from "null": it is not said; to "null": it is removed
};

struct WayToFit {
  std::vector<ChangedValue> changes;
  std::vector<std::string>
      sets;    // values of --set that make the changes, "training.recompute=full"
  Bytes peak;  // of the fullest rank, with all that is wanted
  Duration step_time{};
};

struct WaysToFit {
  std::vector<WayToFit> ways;     // the fastest of each kind, fastest first; empty: nothing fits
  std::vector<WayToFit> closest;  // if nothing fits: what peaks lowest; empty if nothing was tried
  int simulated = 0;
  bool cut_short = false;  // the job is so large that less was tried than could be
  std::string untried;     // what could not be tried, and by what it could; empty: nothing
};

}  // namespace trainyard::simulate
