// ZB-V, V-half and V-min: two chunks per stage, down the stages and back up, and a backward in
// halves. The first and the last virtual stage share a stage, so activations are spread evenly over
// the stages, and how many live at once is a choice.
//
//                time - m 2(F+I+W)   activations of chunks at once   1F1B: 6(p - 1), 2p
//   ZB-V         0, by the span      2p                              m >= 2p - 1
//   V-half       3p - 5              p + 2                           p >= 3, m >= p
//   V-min        4p - 5              floor(2p / 3) + 3               p >= 2
//
// The table is exact for F = I = W = 1 of a chunk without communication. ZB-V's stage s starts s
// later and ends as late.
//
// A building block is one micro-batch: when each stage runs its F of chunk 0, F of chunk 1, I of
// chunk 1 and I of chunk 0, if neighbours run the same pass `delay` after each other. It is
// repeated every six passes, and delays are such that no two of those passes ever meet on a stage.
// The sum of the delays, times p / 6, is how many activations live. Passes keep that order; each
// starts as soon as it can, weight gradients go where nothing else can run. ZB-V's first stages
// also run forwards of chunk 0 ahead of the block when they would wait.
//
// Source: Qi, Wan, Amar, Lin, Pipeline Parallelism with Controllable Memory, NeurIPS 2024 (building
// blocks; ZB-V there as V-ZB) and Qi et al., Zero Bubble Pipeline Parallelism, 2024, 6; the delays
// of the turns are chosen here.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/check.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
namespace {

constexpr int kPasses = 6;  // of a micro-batch on one stage

struct Pattern {
  // Between neighbours: F of chunk 0 (down), F of chunk 1 (up), I of chunk 1 (down), of chunk 0
  // (up).
  std::array<int, 4> delay{};
  // Where the pass changes: at the last stage, at the first, at the last again.
  std::array<int, 3> turn{};
  int limit = 0;       // activations of chunks at once
  bool ahead = false;  // forwards of chunk 0 fill what would be a bubble
};

// When the passes of the first micro-batch stand in the block of one stage.
std::array<std::pair<int, Slot>, 4> block(const Pattern& pattern, int stages, int stage) {
  const auto& [f0, f1, i1, i0] = pattern.delay;
  const int last = stages - 1;
  const int up = last * f0 + pattern.turn[0];
  const int down = up + last * f1 + pattern.turn[1];
  const int home = down + last * i1 + pattern.turn[2];
  return {{{stage * f0, {Pass::forward, 0, 0}},
           {up + (last - stage) * f1, {Pass::forward, 0, 1}},
           {down + stage * i1, {Pass::backward_input, 0, 1}},
           {home + (last - stage) * i0, {Pass::backward_input, 0, 0}}}};
}

// All stages at work, a pass per tick.
class Ticks {
 public:
  Ticks(const PipelineShape& shape, const Pattern& pattern)
      : shape_(shape), pattern_(pattern), stages_(static_cast<std::size_t>(shape.stages)) {
    const auto places = static_cast<std::size_t>(virtual_stages(shape) * shape.microbatches);
    forward_.assign(places, kNever);
    gradient_.assign(places, kNever);
    for (int s = 0; s < shape.stages; ++s) {
      std::vector<std::pair<int, Slot>> steps;
      for (const auto& [at, slot] : block(pattern, shape.stages, s)) {
        for (int i = 0; i < shape.microbatches; ++i) {
          steps.emplace_back(at + kPasses * i, slot);
          steps.back().second.microbatch = i;
        }
      }
      std::sort(steps.begin(), steps.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [at, slot] : steps)
        stage(s).planned.push_back(slot);
    }
  }

  StageOrders run() {
    const std::size_t all = static_cast<std::size_t>(kPasses * shape_.microbatches);
    // Each tick runs at least one pass somewhere, or the pattern is wrong.
    for (int tick = 0, busy = 1; busy > 0; ++tick) {
      busy = 0;
      for (int s = 0; s < shape_.stages; ++s)
        busy += work(s, tick) ? 1 : 0;
    }
    StageOrders orders;
    for (Stage& each : stages_) {
      TRAINYARD_CHECK(each.done.size() == all, "{} of {} passes", each.done.size(), all);
      orders.push_back(std::move(each.done));
    }
    return orders;
  }

 private:
  static constexpr int kNever = 1 << 30;
  struct Stage {
    std::vector<Slot> planned, done;
    std::size_t next = 0;       // of planned
    int forwards_down = 0;      // of chunk 0 that have run, also ahead of the plan
    int live = 0;               // activations
    std::vector<Slot> weights;  // gradients of weights that wait, from first_weight on
    std::size_t first_weight = 0;
    bool gave_back = false;  // in the tick before
  };

  Stage& stage(int s) { return stages_[static_cast<std::size_t>(s)]; }
  std::size_t place(int virtual_stage, int microbatch) const {
    return static_cast<std::size_t>(virtual_stage * shape_.microbatches + microbatch);
  }
  bool ready(int s, const Slot& slot, int tick, int limit) {
    const int at = virtual_stage(shape_, s, slot);
    if (slot.pass == Pass::forward)
      return stage(s).live < limit && (at == 0 || forward_[place(at - 1, slot.microbatch)] <= tick);
    return forward_[place(at, slot.microbatch)] <= tick &&
           (at + 1 == virtual_stages(shape_) || gradient_[place(at + 1, slot.microbatch)] <= tick);
  }
  void start(int s, const Slot& slot, int tick) {
    Stage& own = stage(s);
    own.done.push_back(slot);
    const std::size_t at = place(virtual_stage(shape_, s, slot), slot.microbatch);
    if (slot.pass == Pass::forward) {
      forward_[at] = tick + 1;
      ++own.live;
      if (slot.chunk == 0) ++own.forwards_down;
    } else if (slot.pass == Pass::backward_input) {
      gradient_[at] = tick + 1;
      own.weights.push_back({Pass::backward_weight, slot.microbatch, slot.chunk});
    } else {
      own.gave_back = true;
    }
  }
  // Whether the stage ran a pass.
  bool work(int s, int tick) {
    Stage& own = stage(s);
    if (own.gave_back) --own.live;
    own.gave_back = false;
    const auto ran_ahead = [&](const Slot& slot) {
      return slot.pass == Pass::forward && slot.chunk == 0 && slot.microbatch < own.forwards_down;
    };
    while (own.next < own.planned.size() && ran_ahead(own.planned[own.next]))
      ++own.next;
    if (own.next < own.planned.size() && ready(s, own.planned[own.next], tick, pattern_.limit)) {
      start(s, own.planned[own.next++], tick);
      return true;
    }
    if (own.first_weight < own.weights.size()) {
      start(s, own.weights[own.first_weight++], tick);
      return true;
    }
    const Slot ahead{Pass::forward, own.forwards_down};
    if (!pattern_.ahead || ahead.microbatch == shape_.microbatches) return false;
    // One place stays free for chunk 1, or nothing could go on.
    if (!ready(s, ahead, tick, pattern_.limit - 1)) return false;
    start(s, ahead, tick);
    return true;
  }

  const PipelineShape& shape_;
  const Pattern& pattern_;
  std::vector<Stage> stages_;
  std::vector<int> forward_, gradient_;  // ends, by virtual stage and micro-batch
};

StageOrders run(const PipelineShape& shape, const Pattern& pattern) {
  return Ticks(shape, pattern).run();
}

}  // namespace

StageOrders zero_bubble_v(const PipelineShape& shape, const ScheduleInputs& /*inputs*/) {
  return run(shape, {{1, 5, 1, 5}, {1, 1, 1}, 2 * shape.stages, true});
}

StageOrders v_half(const PipelineShape& shape, const ScheduleInputs& /*inputs*/) {
  const bool even = shape.stages % 2 == 0;
  return run(
      shape,
      {{1, 2, 1, 2}, even ? std::array{4, 1, 5} : std::array{1, 1, 2}, shape.stages + 2, false});
}

StageOrders v_min(const PipelineShape& shape, const ScheduleInputs& /*inputs*/) {
  const bool thirds = shape.stages % 3 == 0;
  return run(shape, {{1, 1, 1, 1},
                     thirds ? std::array{3, 1, 3} : std::array{1, 1, 1},
                     2 * shape.stages / 3 + 3,
                     false});
}

std::optional<std::string> two_chunks(const PipelineShape& shape) {
  if (shape.chunks == 2) return std::nullopt;
  return fmt::format("a V has 2 chunks per stage, got {}", shape.chunks);
}

}  // namespace trainyard::schedule
