// One of several jobs that share a cluster.
#pragma once

#include <string>

#include "sim/base/units.h"

namespace trainyard::simulate {

struct JobShare {
  std::string name;
  int ranks = 0;
  bool fits = true;       // into the memory of its devices
  bool is_tight = false;  // as of MemoryReport
  // A step by itself and beside the others, each on average over several in a row.
  Duration alone{}, together{};
  int steps = 0;  // over which `together` is taken; 0: not known

  // How many times as long its step takes beside the others. Requires: steps.
  double slowdown() const { return Seconds(together).count() / Seconds(alone).count(); }
};

// "16 ranks, 92.0 ms a step alone, 103 ms beside the others (+12.0 %)".
std::string describe(const JobShare& share);

}  // namespace trainyard::simulate
