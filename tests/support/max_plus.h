// What a pipeline takes by definition: the longest path through its passes, in integers.
//
//   end(pass) = duration(pass) + max over what comes before it of (end(before) + hop)
//
// What comes before: the previous pass of the same stage, its own forward, and the pass of the same
// micro-batch on the neighbouring virtual stage (only there a hop, and only if that is another
// stage). Passes that overlap begin together, after what either needs, and end together. Written
// from that definition and shared by no product code (but the placement): schedules and engine are
// held against it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/schedule.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {

// Per stage; the hop is a latency that occupies no stage. A pair of overlapping passes takes
// `pair`, or the sum of both if that is 0.
struct PipelineTimes {
  std::function<std::int64_t(int stage, Pass)> duration;
  std::int64_t hop = 0;
  std::int64_t pair = 0;
};

inline PipelineTimes equal_stages(std::int64_t forward, std::int64_t backward,
                                  std::int64_t hop = 0) {
  return {[=](int, Pass pass) { return pass == Pass::forward ? forward : backward; }, hop};
}

// The halves of a backward by themselves; a whole one is their sum.
inline PipelineTimes equal_halves(std::int64_t forward, std::int64_t input, std::int64_t weight,
                                  std::int64_t hop = 0, std::int64_t pair = 0) {
  return {[=](int, Pass pass) {
            switch (pass) {
              case Pass::forward: return forward;
              case Pass::backward: return input + weight;
              case Pass::backward_input: return input;
              case Pass::backward_weight: return weight;
            }
            return std::int64_t{0};
          },
          hop, pair};
}

struct PipelineRun {
  std::vector<std::vector<std::int64_t>> begins, ends;  // by stage and position in its order
  std::int64_t makespan = 0;
  // From the first begin to the last end of a stage, the longest of all stages.
  std::int64_t longest_span = 0;
};

// The longest path, pass by pass. Requires: the order is valid (check_schedule), else it does not
// return. Recursive: for thousands of passes, not for millions.
class LongestPath {
 public:
  LongestPath(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
              const PipelineTimes& times)
      : shape_(shape), stages_(stages), times_(times), where_(key(3, 0, 0)) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      const std::vector<Slot>& slots = of(stage);
      run_.begins.emplace_back(slots.size(), -1);
      run_.ends.emplace_back(slots.size(), -1);
      for (std::size_t i = 0; i < slots.size(); ++i)
        where_[key(kind(slots[i].pass), line(stage, slots[i]), slots[i].microbatch)] = {stage, i};
    }
  }

  PipelineRun run() {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      for (std::size_t i = 0; i < of(stage).size(); ++i)
        run_.makespan = std::max(run_.makespan, end({stage, i}));
      if (!run_.ends[at].empty())
        run_.longest_span =
            std::max(run_.longest_span, run_.ends[at].back() - run_.begins[at].front());
    }
    return run_;
  }

 private:
  struct Place {
    int stage;
    std::size_t position;
  };

  const std::vector<Slot>& of(int stage) const { return stages_[static_cast<std::size_t>(stage)]; }
  static int kind(Pass pass) {
    return pass == Pass::forward ? 0 : pass == Pass::backward_weight ? 2 : 1;
  }
  // The virtual stages of all copies in a row.
  int line(int stage, const Slot& slot) const {
    return slot.direction * virtual_stages(shape_) + virtual_stage(shape_, stage, slot);
  }
  std::size_t key(int pass_kind, int on_line, int microbatch) const {
    const int length = directions(shape_) * virtual_stages(shape_);
    return static_cast<std::size_t>((pass_kind * length + on_line) * shape_.microbatches +
                                    microbatch);
  }
  std::int64_t after(Place at, int kind_before, int on_line, int microbatch) {
    const Place before = where_[key(kind_before, on_line, microbatch)];
    return end(before) + (before.stage == at.stage ? 0 : times_.hop);
  }

  std::int64_t ready(Place at) {
    const Slot& slot = of(at.stage)[at.position];
    const int here = virtual_stage(shape_, at.stage, slot);
    const int on_line = line(at.stage, slot);
    std::int64_t start = 0;
    const auto wait = [&](int kind_before, int other) {
      start = std::max(start, after(at, kind_before, other, slot.microbatch));
    };
    if (kind(slot.pass) == 0 && here > 0) wait(0, on_line - 1);
    if (kind(slot.pass) == 1) wait(0, on_line);
    if (kind(slot.pass) == 1 && here + 1 < virtual_stages(shape_)) wait(1, on_line + 1);
    if (kind(slot.pass) == 2) wait(1, on_line);
    return start;
  }

  std::int64_t end(Place at) {
    const auto stage = static_cast<std::size_t>(at.stage);
    if (run_.ends[stage][at.position] >= 0) return run_.ends[stage][at.position];
    const std::vector<Slot>& slots = of(at.stage);
    // The second of a pair ends with the first.
    if (at.position > 0 && slots[at.position - 1].paired) return end({at.stage, at.position - 1});
    std::int64_t start = at.position > 0 ? end({at.stage, at.position - 1}) : 0;
    start = std::max(start, ready(at));
    std::int64_t takes = times_.duration(at.stage, slots[at.position].pass);
    if (slots[at.position].paired) {
      start = std::max(start, ready({at.stage, at.position + 1}));
      takes = times_.pair > 0 ? times_.pair
                              : takes + times_.duration(at.stage, slots[at.position + 1].pass);
      run_.begins[stage][at.position + 1] = start;
      run_.ends[stage][at.position + 1] = start + takes;
    }
    run_.begins[stage][at.position] = start;
    return run_.ends[stage][at.position] = start + takes;
  }

  const PipelineShape& shape_;
  std::span<const std::vector<Slot>> stages_;
  const PipelineTimes& times_;
  // Where each pass is, by kind (0 forward, 1 gradient of the input, 2 the rest), virtual stage and
  // micro-batch.
  std::vector<Place> where_;
  PipelineRun run_;
};

inline PipelineRun longest_path(const PipelineShape& shape,
                                std::span<const std::vector<Slot>> stages,
                                const PipelineTimes& times) {
  return LongestPath(shape, stages, times).run();
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
