// What each stage of an input pipeline gives, against what the GPUs take.
#pragma once

#include <optional>
#include <string>

#include "sim/base/units.h"

namespace trainyard::simulate {

// Times of one batch, which is a micro-batch of one rank.
struct InputReport {
  int workers = 0, prefetch = 0;         // of each rank
  int cores = 0, workers_of_server = 0;  // cores 0: not stated
  int most_workers = 0;                  // that a scenario may give a rank
  Duration prepare{};                    // of a worker, beside the others of its server
  Duration prepare_alone{};              // of a worker with a core of its own
  Duration cores_at_best{};              // two batches of a rank from all cores; 0: not stated
  Duration read{};                       // of the rank's part of the storage; 0: nothing is read
  Duration between{};                    // two batches from storage and workers, at best
  Duration taken{};                      // two batches that the rank would take without waiting

  bool keeps_up() const { return between <= taken; }
  bool storage_limits() const { return read > taken && between <= read; }
  // The fewest workers of a rank that would keep up; empty: more do not help.
  std::optional<int> workers_needed() const;
};

// What limits the batches and what would not, as a sentence's end: "; 4 workers ...".
std::string describe(const InputReport& input);

}  // namespace trainyard::simulate
