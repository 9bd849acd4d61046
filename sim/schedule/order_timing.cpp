#include "sim/schedule/order_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/check.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::schedule {
namespace {

constexpr Duration kNotYet{-1};

// Looks up the times of slots.
class Times {
 public:
  Times(const PipelineShape& shape, std::span<const PassTimes> times)
      : shape_(shape), times_(times) {
    TRAINYARD_CHECK(static_cast<int>(times.size()) == shape.stages * parts(shape),
                    "{} times for {} stages of {} parts", times.size(), shape.stages, parts(shape));
  }
  const PassTimes& of(int stage, const Slot& slot) const {
    return times_[static_cast<std::size_t>(stage * parts(shape_) + part(shape_, slot))];
  }
  Duration pass(int stage, const Slot& slot) const {
    const PassTimes& times = of(stage, slot);
    switch (slot.pass) {
      case Pass::forward: return times.forward;
      case Pass::backward: return times.backward();
      case Pass::backward_input: return times.backward_input;
      case Pass::backward_weight: return times.backward_weight;
    }
    return {};
  }
  // The length of the pass at `at`, or of the pair that begins there.
  Duration pass_or_pair(int stage, const std::vector<Slot>& slots, std::size_t at) const {
    if (!slots[at].paired) return pass(stage, slots[at]);
    const Duration together = of(stage, slots[at + 1]).overlapped;
    if (together > Duration(0)) return together;
    return pass(stage, slots[at]) + pass(stage, slots[at + 1]);
  }

 private:
  const PipelineShape& shape_;
  std::span<const PassTimes> times_;
};

class Runner {
 public:
  Runner(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
         std::span<const PassTimes> times)
      : shape_(shape),
        stages_(stages),
        times_(shape, times),
        next_(stages.size(), 0),
        clock_(stages.size()),
        forward_(places(), kNotYet),
        gradient_(places(), kNotYet) {
    run_.begins.resize(stages.size());
    run_.ends.resize(stages.size());
  }

  OrderRun run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
        while (next_[stage] < stages_[stage].size() && try_next(stage))
          progress = true;
      }
    }
    for (std::size_t stage = 0; stage < stages_.size() && !run_.deadlock; ++stage) {
      if (next_[stage] < stages_[stage].size()) run_.deadlock = cycle_from(stage);
    }
    return std::move(run_);
  }

 private:
  // What a pass needs from elsewhere.
  struct Need {
    int stage = 0;
    Slot slot;
    Duration arrives = kNotYet;
  };

  std::size_t places() const {
    return static_cast<std::size_t>(directions(shape_)) *
           static_cast<std::size_t>(virtual_stages(shape_)) *
           static_cast<std::size_t>(shape_.microbatches);
  }
  std::size_t place(int virtual_stage, const Slot& slot) const {
    return static_cast<std::size_t>(slot.direction * virtual_stages(shape_) + virtual_stage) *
               static_cast<std::size_t>(shape_.microbatches) +
           static_cast<std::size_t>(slot.microbatch);
  }
  Need need(const Seat& from, Pass pass, int stage, const Slot& slot,
            const std::vector<Duration>& ends) const {
    Need need{from.stage, {pass, slot.microbatch, from.chunk, from.direction}};
    need.arrives = ends[place(virtual_stage(shape_, from), slot)];
    if (need.arrives != kNotYet && from.stage != stage)
      need.arrives += times_.of(from.stage, need.slot).communication;
    return need;
  }
  // What the pass needs of the virtual stage before it (forward) or after it (backward), and of its
  // own: the forward of a gradient, the input's gradient of the weights'.
  std::optional<Need> unmet_or_last(int stage, const Slot& slot, Duration& ready) const {
    const int at = virtual_stage(shape_, stage, slot);
    const Seat own{stage, slot.chunk, slot.direction};
    std::array<Need, 2> needs;
    std::size_t count = 0;
    if (slot.pass == Pass::forward && at > 0)
      needs[count++] =
          need(seat(shape_, at - 1, slot.direction), Pass::forward, stage, slot, forward_);
    if (gives_gradient(slot.pass)) needs[count++] = need(own, Pass::forward, stage, slot, forward_);
    if (gives_gradient(slot.pass) && at + 1 < virtual_stages(shape_))
      needs[count++] =
          need(seat(shape_, at + 1, slot.direction), Pass::backward, stage, slot, gradient_);
    if (slot.pass == Pass::backward_weight)
      needs[count++] = need(own, Pass::backward_input, stage, slot, gradient_);
    for (std::size_t i = 0; i < count; ++i) {
      if (needs[i].arrives == kNotYet) return needs[i];
      ready = std::max(ready, needs[i].arrives);
    }
    return std::nullopt;
  }
  // How many slots start together at the head of a stage.
  std::size_t width(std::size_t stage) const { return stages_[stage][next_[stage]].paired ? 2 : 1; }
  std::optional<Need> unmet(std::size_t stage, Duration& ready) const {
    for (std::size_t i = 0; i < width(stage); ++i) {
      if (auto missing =
              unmet_or_last(static_cast<int>(stage), stages_[stage][next_[stage] + i], ready))
        return missing;
    }
    return std::nullopt;
  }

  bool try_next(std::size_t stage) {
    Duration begin = clock_[stage];
    if (unmet(stage, begin)) return false;
    const std::vector<Slot>& slots = stages_[stage];
    const std::size_t first = next_[stage];
    clock_[stage] = begin + times_.pass_or_pair(static_cast<int>(stage), slots, first);
    for (std::size_t i = first, end = first + width(stage); i < end; ++i, ++next_[stage]) {
      run_.begins[stage].push_back(begin);
      run_.ends[stage].push_back(clock_[stage]);
      const Slot& slot = slots[i];
      const std::size_t at = place(virtual_stage(shape_, static_cast<int>(stage), slot), slot);
      if (slot.pass == Pass::forward) forward_[at] = clock_[stage];
      if (gives_gradient(slot.pass)) gradient_[at] = clock_[stage];
    }
    return true;
  }

  // Follows, from a stage that is stuck, who waits for whom until a stage comes again.
  std::string cycle_from(std::size_t stage) const {
    std::vector<std::size_t> path;
    Duration ignored{};
    while (std::find(path.begin(), path.end(), stage) == path.end()) {
      path.push_back(stage);
      const auto missing = unmet(stage, ignored);
      TRAINYARD_CHECK(missing, "stage {} is not stuck", stage);
      stage = static_cast<std::size_t>(missing->stage);
      if (next_[stage] == stages_[stage].size())
        return fmt::format("stage {} needs {} of stage {}, which never runs it", path.back(),
                           describe(shape_, missing->slot), stage);
    }
    std::string text = "the stages wait for each other";
    for (auto at = std::find(path.begin(), path.end(), stage); at != path.end(); ++at) {
      const auto missing = unmet(*at, ignored);
      text += fmt::format("; stage {} is at {} and needs {} of stage {}", *at,
                          describe(shape_, stages_[*at][next_[*at]]),
                          describe(shape_, missing->slot), missing->stage);
    }
    return text;
  }

  const PipelineShape& shape_;
  std::span<const std::vector<Slot>> stages_;
  Times times_;
  std::vector<std::size_t> next_;  // position in the order, by stage
  std::vector<Duration> clock_;
  std::vector<Duration> forward_, gradient_;  // ends, by direction, virtual stage and micro-batch
  OrderRun run_;
};

}  // namespace

Duration OrderRun::makespan() const {
  Duration end{};
  for (const std::vector<Duration>& stage : ends)
    if (!stage.empty()) end = std::max(end, stage.back());
  return end;
}

Duration OrderRun::span(int stage) const {
  const auto at = static_cast<std::size_t>(stage);
  return ends[at].empty() ? Duration(0) : ends[at].back() - begins[at].front();
}

Duration OrderRun::longest_span() const {
  Duration longest{};
  for (std::size_t stage = 0; stage < ends.size(); ++stage)
    longest = std::max(longest, span(static_cast<int>(stage)));
  return longest;
}

OrderRun run_orders(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                    std::span<const PassTimes> times) {
  return Runner(shape, stages, times).run();
}

std::vector<PassTimes> uniform_times(const PipelineShape& shape, const PassTimes& times) {
  return std::vector<PassTimes>(static_cast<std::size_t>(shape.stages * parts(shape)), times);
}

std::vector<Bytes> peak_activations(const PipelineShape& shape,
                                    std::span<const std::vector<Slot>> stages,
                                    std::span<const PassTimes> times) {
  const Times table(shape, times);
  std::vector<Bytes> peaks;
  for (int stage = 0; stage < shape.stages; ++stage) {
    Bytes now{}, most{};
    for (const Slot& slot : stages[static_cast<std::size_t>(stage)]) {
      const Bytes own = table.of(stage, slot).activations;
      if (slot.pass == Pass::forward) now = now + own;
      most = std::max(most, now);
      if (ends_backward(slot.pass)) now = now - own;
    }
    peaks.push_back(most);
  }
  return peaks;
}

Duration busy(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
              std::span<const PassTimes> times, int stage) {
  const Times table(shape, times);
  const std::vector<Slot>& slots = stages[static_cast<std::size_t>(stage)];
  Duration sum{};
  for (std::size_t i = 0; i < slots.size(); i += slots[i].paired ? 2U : 1U)
    sum += table.pass_or_pair(stage, slots, i);
  return sum;
}

std::string describe(const PipelineShape& shape, const Slot& slot) {
  std::string text = fmt::format("{}{}", letter(slot.pass), slot.microbatch);
  if (shape.chunks > 1) text += fmt::format(" of chunk {}", slot.chunk);
  if (directions(shape) > 1) text += fmt::format(" of copy {}", slot.direction);
  return text;
}

}  // namespace trainyard::schedule
