// What a pipeline takes by definition: the longest path through its passes, in integers.
//
//   end(pass) = duration(pass) + max over what comes before it of (end(before) + hop)
//
// What comes before: the previous pass of the same stage, its own forward, and the pass of the same
// micro-batch on the neighbouring virtual stage (only there a hop, and only if that is another
// stage). Written from that definition and shared by no product code: schedules and engine are held
// against it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/plan/schedule.h"

namespace trainyard::testing {

// Per stage; the hop is a latency that occupies no stage.
struct PipelineTimes {
  std::function<std::int64_t(int stage, Pass)> duration;
  std::int64_t hop = 0;
};

inline PipelineTimes equal_stages(std::int64_t forward, std::int64_t backward,
                                  std::int64_t hop = 0) {
  return {[=](int, Pass pass) { return pass == Pass::forward ? forward : backward; }, hop};
}

struct PipelineRun {
  std::vector<std::vector<std::int64_t>> ends;  // by stage and position in its order
  std::int64_t makespan = 0;
};

// Requires: the order is valid (check_schedule), else it does not return. Recursive: for thousands
// of passes, not for millions.
inline PipelineRun longest_path(const PipelineShape& shape,
                                std::span<const std::vector<Slot>> stages,
                                const PipelineTimes& times) {
  struct Place {
    int stage;
    std::size_t position;
  };
  const auto kind = [](Pass pass) {
    return pass == Pass::forward ? 0 : pass == Pass::backward_weight ? 2 : 1;
  };
  // Where each pass is, by kind (0 forward, 1 gradient of the input, 2 the rest), virtual stage and
  // micro-batch.
  const int m = shape.microbatches;
  const auto key = [&](int pass_kind, int virtual_stage, int microbatch) {
    return static_cast<std::size_t>((pass_kind * shape.stages * shape.chunks + virtual_stage) * m +
                                    microbatch);
  };
  std::vector<Place> where(key(3, 0, 0));
  PipelineRun run;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const std::vector<Slot>& slots = stages[static_cast<std::size_t>(stage)];
    run.ends.emplace_back(slots.size(), -1);
    for (std::size_t i = 0; i < slots.size(); ++i)
      where[key(kind(slots[i].pass), slots[i].chunk * shape.stages + stage, slots[i].microbatch)] =
          {stage, i};
  }

  std::function<std::int64_t(Place)> end = [&](Place at) -> std::int64_t {
    const auto stage = static_cast<std::size_t>(at.stage);
    if (run.ends[stage][at.position] >= 0) return run.ends[stage][at.position];
    const Slot& slot = stages[stage][at.position];
    std::int64_t start = at.position > 0 ? end({at.stage, at.position - 1}) : 0;
    const int here = slot.chunk * shape.stages + at.stage;
    const int last = shape.stages * shape.chunks - 1;
    const auto after = [&](int kind_before, int virtual_stage) {
      const Place before = where[key(kind_before, virtual_stage, slot.microbatch)];
      start = std::max(start, end(before) + (before.stage == at.stage ? 0 : times.hop));
    };
    if (kind(slot.pass) == 0 && here > 0) after(0, here - 1);
    if (kind(slot.pass) == 1) after(0, here);
    if (kind(slot.pass) == 1 && here < last) after(1, here + 1);
    if (kind(slot.pass) == 2) after(1, here);
    return run.ends[stage][at.position] = start + times.duration(at.stage, slot.pass);
  };
  for (int stage = 0; stage < shape.stages; ++stage)
    for (std::size_t i = 0; i < stages[static_cast<std::size_t>(stage)].size(); ++i)
      run.makespan = std::max(run.makespan, end({stage, i}));
  return run;
}

// The most micro-batches (per chunk) whose forward has run and whose backward has not, on one
// stage.
inline int most_in_flight(const std::vector<Slot>& slots) {
  int now = 0, most = 0;
  for (const Slot& slot : slots) {
    if (slot.pass == Pass::forward) most = std::max(most, ++now);
    if (slot.pass == Pass::backward || slot.pass == Pass::backward_weight) --now;
  }
  return most;
}

}  // namespace trainyard::testing
