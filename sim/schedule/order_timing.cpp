#include "sim/schedule/order_timing.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::schedule {
namespace {

constexpr Duration kNotYet{-1};

// Looks up the times of slots.
class Times {
 public:
  Times(const PipelineShape& shape, std::span<const PassTimes> times)
      : parts_(parts(shape)), chunks_(shape.chunks), times_(times) {
    TRAINYARD_CHECK(static_cast<int>(times.size()) == shape.stages * parts_,
                    "{} times for {} stages of {} parts", times.size(), shape.stages, parts_);
  }
  // The number of a slot's part, of all stages.
  std::size_t part_of(int stage, const Slot& slot) const {
    return static_cast<std::size_t>(stage * parts_ + part(chunks_, slot));
  }
  const PassTimes& of(int stage, const Slot& slot) const { return times_[part_of(stage, slot)]; }
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
  int parts_, chunks_;
  std::span<const PassTimes> times_;
};

class Runner {
 public:
  // `records`: begins and ends are asked for.
  Runner(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
         std::span<const PassTimes> times, bool records)
      : shape_(shape),
        stages_(stages),
        records_(records),
        times_(shape, times),
        next_(stages.size(), 0),
        clock_(stages.size()),
        forward_(places(), kNotYet),
        gradient_(places(), kNotYet) {
    if (records) {
      run_.begins.resize(stages.size());
      run_.ends.resize(stages.size());
    }
    for (std::size_t stage = 0; records && stage < stages.size(); ++stage) {
      run_.begins[stage].reserve(stages[stage].size());
      run_.ends[stage].reserve(stages[stage].size());
    }
    for (int stage = 0; stage < shape.stages; ++stage)
      for (std::uint8_t direction = 0; direction < directions(shape); ++direction)
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
          links_.push_back(links_of({stage, chunk, direction}));
  }

  // A stage goes on as far as it can, then those for which it has made something.
  OrderRun run() {
    is_due_.assign(stages_.size(), true);
    for (std::size_t stage = stages_.size(); stage-- > 0;)
      due_.push_back(stage);
    while (!due_.empty()) {
      const std::size_t stage = due_.back();
      due_.pop_back();
      is_due_[stage] = false;
      while (next_[stage] < stages_[stage].size() && try_next(stage)) {
      }
    }
    for (std::size_t stage = 0; stage < stages_.size() && !run_.deadlock; ++stage) {
      if (next_[stage] < stages_[stage].size()) run_.deadlock = cycle_from(stage);
    }
    return std::move(run_);
  }
  // Behind run().
  Duration makespan() const { return *std::max_element(clock_.begin(), clock_.end()); }

 private:
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

  // Whose passes a part of a stage waits for, and wakes.
  struct Neighbour {
    std::size_t row = kNobody;  // where the ends of its passes begin; kNobody: there is none
    Seat seat;
    Duration message{};  // how long one of its messages takes to the part
  };
  // Of a part: itself, and the virtual stages before and after it.
  struct Links {
    Neighbour own, before, after;
  };
  // What a pass needs that has not run.
  struct Need {
    int stage = 0;
    Slot slot;
  };

  Links links_of(const Seat& of) const {
    const int at = virtual_stage(shape_, of);
    const auto neighbour = [&](int virtual_stage) -> Neighbour {
      if (virtual_stage < 0 || virtual_stage >= virtual_stages(shape_)) return {};
      const Seat from = seat(shape_, virtual_stage, of.direction);
      const Slot slot{{}, 0, from.chunk, from.direction};
      return {place(virtual_stage, slot), from,
              from.stage == of.stage ? Duration(0) : times_.of(from.stage, slot).communication};
    };
    return {neighbour(at), neighbour(at - 1), neighbour(at + 1)};
  }
  const Links& links(std::size_t stage, const Slot& slot) const {
    return links_[times_.part_of(static_cast<int>(stage), slot)];
  }
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
  // What the pass needs of the virtual stage before it (forward) or after it (backward), and of its
  // own: the forward of a gradient, the input's gradient of the weights'. Nothing: it may run, not
  // before `ready`.
  std::optional<Need> unmet(std::size_t stage, const Slot& slot, Duration& ready) const {
    const Links& of = links(stage, slot);
    const auto lacks = [&](const std::vector<Duration>& ends, const Neighbour& from) {
      if (from.row == kNobody) return false;
      const Duration end = ends[from.row + static_cast<std::size_t>(slot.microbatch)];
      if (end != kNotYet) ready = std::max(ready, end + from.message);
      return end == kNotYet;
    };
    const auto need = [&](const Neighbour& from, Pass pass) {
      return Need{from.seat.stage, {pass, slot.microbatch, from.seat.chunk, from.seat.direction}};
    };
    if (slot.pass == Pass::forward && lacks(forward_, of.before))
      return need(of.before, Pass::forward);
    if (gives_gradient(slot.pass) && lacks(forward_, of.own)) return need(of.own, Pass::forward);
    if (gives_gradient(slot.pass) && lacks(gradient_, of.after))
      return need(of.after, Pass::backward);
    if (slot.pass == Pass::backward_weight && lacks(gradient_, of.own))
      return need(of.own, Pass::backward_input);
    return std::nullopt;
  }
  // How many slots start together at the head of a stage.
  std::size_t width(std::size_t stage) const { return stages_[stage][next_[stage]].paired ? 2 : 1; }
  // The same of the head of a stage.
  std::optional<Need> unmet(std::size_t stage, Duration& ready) const {
    for (std::size_t i = 0; i < width(stage); ++i)
      if (auto missing = unmet(stage, stages_[stage][next_[stage] + i], ready)) return missing;
    return std::nullopt;
  }
  void wake(const Neighbour& of) {
    const auto stage = static_cast<std::size_t>(of.seat.stage);
    if (of.row == kNobody || is_due_[stage]) return;
    is_due_[stage] = true;
    due_.push_back(stage);
  }

  bool try_next(std::size_t stage) {
    Duration begin = clock_[stage];
    if (unmet(stage, begin)) return false;
    const std::vector<Slot>& slots = stages_[stage];
    const std::size_t first = next_[stage];
    clock_[stage] = begin + times_.pass_or_pair(static_cast<int>(stage), slots, first);
    for (std::size_t i = first, end = first + width(stage); i < end; ++i, ++next_[stage]) {
      if (records_) {
        run_.begins[stage].push_back(begin);
        run_.ends[stage].push_back(clock_[stage]);
      }
      const Slot& slot = slots[i];
      const Links& to = links(stage, slot);
      const std::size_t at = to.own.row + static_cast<std::size_t>(slot.microbatch);
      if (slot.pass == Pass::forward) {
        forward_[at] = clock_[stage];
        wake(to.after);
      }
      if (gives_gradient(slot.pass)) {
        gradient_[at] = clock_[stage];
        wake(to.before);
      }
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
  bool records_;
  Times times_;
  std::vector<std::size_t> next_;  // position in the order, by stage
  std::vector<Duration> clock_;
  std::vector<Duration> forward_, gradient_;  // ends, by direction, virtual stage and micro-batch
  std::vector<Links> links_;                  // by stage and part
  std::vector<std::size_t> due_;              // stages that may go on
  std::vector<bool> is_due_;                  // by stage
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
  return Runner(shape, stages, times, true).run();
}

Duration makespan(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                  std::span<const PassTimes> times) {
  Runner runner(shape, stages, times, false);
  runner.run();
  return runner.makespan();
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
