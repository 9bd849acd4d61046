// Runs the orders of all stages against each other, without an engine: when every pass begins and
// ends, or who waits for whom.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {

struct OrderRun {
  // Instants by stage and position; passes that never run are missing at the end.
  std::vector<std::vector<Duration>> begins, ends;
  // Who waits for whom, as a sentence; nullopt if every pass has run.
  std::optional<std::string> deadlock;

  Duration makespan() const;
  // The time from the begin of the stage's first pass to the end of its last.
  Duration span(int stage) const;
  Duration longest_span() const;
};

// `times` by stage and part. Requires: every slot names a micro-batch and a part of the shape, and
// no pass occurs twice.
OrderRun run_orders(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                    std::span<const PassTimes> times);

// OrderRun::makespan() alone. Requires: as above, and a stage.
Duration makespan(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                  std::span<const PassTimes> times);

// The same times for every part.
std::vector<PassTimes> uniform_times(const PipelineShape& shape, const PassTimes& times);

// The most activations that each stage holds at once. `times` as above, only their bytes count.
std::vector<Bytes> peak_activations(const PipelineShape& shape,
                                    std::span<const std::vector<Slot>> stages,
                                    std::span<const PassTimes> times);

// What a stage does in all, passes that overlap counted once.
Duration busy(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
              std::span<const PassTimes> times, int stage);

// "F4", "F4 of chunk 2", "B0 of copy 1".
std::string describe(const PipelineShape& shape, const Slot& slot);

}  // namespace trainyard::schedule
