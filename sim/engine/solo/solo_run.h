// Carries out a solo by itself: the rules of the engine for one actor that nobody else touches,
// whose host is ahead of it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/units.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/compute/kernel_clock.h"
#include "sim/engine/solo/solos.h"
#include "sim/engine/transfer_time.h"

namespace trainyard::engine {

// Actors that carry out the solos of programs with the same code in the same times.
struct SoloKind {
  const CompiledProgram* program = nullptr;  // one of those with their code
  const Solos* solos = nullptr;
  const KernelTimes* times = nullptr;
  const WorkTime* work = nullptr;
  const HostTimes* host = nullptr;
  std::vector<const std::vector<Transfer>*> tables;  // by column; null: has other members
  int units = 1;
};

class SoloRun {
 public:
  // Of one stream.
  struct Lane {
    std::uint32_t stream = 0;
    std::uint32_t at = 0, last = 0;  // its next op, and behind its last; into CompiledProgram::ops
    std::uint32_t ended = 0;         // its ops that have ended since the begin of the block
    bool runs = false;
    bool slowed = false;  // it has a clock
    Duration begin{}, end{};
    KernelClock clock;

    const KernelClock* find_clock() const { return slowed ? &clock : nullptr; }
    void move_on(Duration by) {
      begin = later(begin, by);
      end = later(end, by);
      clock.move_on(by);
    }
  };

  // From the op `entry` of CompiledProgram::ops on, which begins at `now`.
  // Requires: the kind's solo `number` can be entered there.
  SoloRun(const SoloKind& kind, std::uint32_t number, std::uint32_t entry, Duration now)
      : kind_(kind), now_(now) {
    const CompiledProgram& program = *kind.program;
    const Solo& solo = kind.solos->all()[number];
    const std::uint32_t index = program.ops[entry].index;
    std::uint32_t nth = 0;
    for (std::uint32_t bits = solo.streams; bits != 0; bits &= bits - 1, ++nth) {
      const auto s = static_cast<std::uint32_t>(std::countr_zero(bits));
      const std::uint32_t first =
          program.stream_begin[std::size_t{solo.block} * (program.streams + 1) + s];
      Lane& lane = lanes_[count_];
      lane.stream = s;
      lane.last = kind.solos->end(solo, nth);
      lane.at = first_from(program, first, lane.last, index);
      lane.ended = lane.at - first;
      if (s == program.ops[entry].stream) entry_ = count_;
      lane_of_[s] = static_cast<std::uint8_t>(count_++);
    }
    start(entry_lane());
    settle();
  }
  Lane& entry_lane() { return lanes_[entry_]; }

  // The first op of [first, last), which are of one stream, that is `index` or later in the block.
  static std::uint32_t first_from(const CompiledProgram& program, std::uint32_t first,
                                  std::uint32_t last, std::uint32_t index) {
    const auto begin = program.ops.begin();
    return static_cast<std::uint32_t>(
        std::partition_point(begin + first, begin + last,
                             [&](const CompiledOp& op) { return op.index < index; }) -
        begin);
  }

  // As if all of it were so much later.
  void move_on(Duration by) {
    now_ = later(now_, by);
    for (std::uint32_t l = 0; l < count_; ++l)
      lanes_[l].move_on(by);
  }

  // Until all has ended; sink.begin(lane) and sink.end(lane) are told of each op in the order of
  // time, while it is the next of its lane. The entry's begin is not told.
  template <class Sink>
  Duration finish(Sink& sink) {
    for (Duration next = next_end(); next < kNever; next = next_end()) {
      now_ = next;
      end_all(sink);
      begin_all(sink);
      settle();
    }
    return now_;
  }
  // The same of what ends by `until` and begins before.
  template <class Sink>
  void run(Duration until, Sink& sink) {
    for (Duration next = next_end(); next <= until; next = next_end()) {
      now_ = next;
      end_all(sink);
      if (next == until) return;
      begin_all(sink);
      settle();
    }
  }

  std::span<const Lane> lanes() const { return std::span(lanes_).first(count_); }
  // Whether transfers hold other units than kernels that run know of.
  bool is_settled() const { return !changed_; }
  // How often the sink was told of something.
  std::uint64_t told() const { return told_; }

 private:
  static constexpr Duration kNever = Duration::max();

  Duration next_end() const {
    Duration next = kNever;
    for (std::uint32_t l = 0; l < count_; ++l)
      if (lanes_[l].runs) next = std::min(next, lanes_[l].end);
    return next;
  }

  template <class Sink>
  void end_all(Sink& sink) {
    for (std::uint32_t l = 0; l < count_; ++l) {
      Lane& lane = lanes_[l];
      if (!lane.runs || lane.end != now_) continue;
      const CompiledOp& op = kind_.program->ops[lane.at];
      if (op.kind != OpKind::compute) hold(-transfer(op).units_taken);
      sink.end(lane);
      ++told_;
      lane.runs = false;
      ++lane.at;
      ++lane.ended;
    }
  }
  // What takes no time ends at once.
  template <class Sink>
  void begin_all(Sink& sink) {
    for (bool more = true; more;) {
      more = false;
      for (std::uint32_t l = 0; l < count_; ++l) {
        Lane& lane = lanes_[l];
        if (lane.runs || lane.at == lane.last || !may_begin(lane)) continue;
        sink.begin(lane, now_);
        ++told_;
        start(lane);
        if (lane.end > now_) continue;
        more = true;
        end_all(sink);
      }
    }
  }

  bool may_begin(const Lane& lane) const {
    const CompiledOp& op = kind_.program->ops[lane.at];
    const std::uint32_t* threshold = kind_.program->thresholds.data() + op.first_threshold;
    for (std::uint32_t waits = op.waits; waits != 0; waits &= waits - 1, ++threshold) {
      const std::uint8_t other = lane_of_[static_cast<std::size_t>(std::countr_zero(waits))];
      if (other != kNoLane && lanes_[other].ended < *threshold) return false;
    }
    return true;
  }

  void start(Lane& lane) {
    const CompiledOp& op = kind_.program->ops[lane.at];
    lane.runs = true;
    lane.slowed = false;
    lane.begin = now_;
    if (op.kind != OpKind::compute) {
      const Transfer& terms = transfer(op);
      hold(terms.units_taken);
      lane.end = later(now_, transfer_time(terms));
      return;
    }
    if (taken() == 0) {
      lane.end = later(now_, kind_.work[op.subject].total);
      return;
    }
    const KernelSequence sequence = kernels(lane);
    lane.slowed = true;
    lane.clock = KernelClock(sequence, now_, taken());
    lane.end = KernelClock(lane.clock).finish(sequence, kIgnore);
  }

  // The end of an instant: kernels go on as fast as units are left.
  void settle() {
    if (!changed_) return;
    changed_ = false;
    for (std::uint32_t l = 0; l < count_; ++l) {
      Lane& lane = lanes_[l];
      if (!lane.runs || kind_.program->ops[lane.at].kind != OpKind::compute) continue;
      if ((lane.slowed ? lane.clock.taken() : 0) == taken()) continue;
      const KernelSequence sequence = kernels(lane);
      if (!lane.slowed) lane.clock = KernelClock(sequence, lane.begin, 0);
      lane.slowed = true;
      lane.clock.advance(sequence, now_, kIgnore);
      lane.clock.set_taken(taken());
      lane.end = KernelClock(lane.clock).finish(sequence, kIgnore);
    }
  }

  void hold(int units) {
    taken_ += units;
    changed_ |= units != 0;
  }
  std::int64_t taken() const { return std::min<std::int64_t>(kind_.units - 1, taken_); }

  const Transfer& transfer(const CompiledOp& op) const {
    const std::vector<Transfer>& table = *kind_.tables[op.column];
    TRAINYARD_CHECK(op.subject < table.size(), "transfer {} of {}", op.subject, table.size());
    return table[op.subject];
  }
  // All had been issued when it began.
  KernelSequence kernels(const Lane& lane) const {
    const CompiledOp& op = kind_.program->ops[lane.at];
    const Program& program = *kind_.program->program;
    const Segment& segment = program.segments[kind_.program->works[op.subject].segment];
    return {.kernels = program.kernels.data() + segment.first_kernel,
            .times = kind_.times,
            .weights = kind_.times->weight.empty() ? nullptr : kind_.times->weight.data(),
            .count = segment.kernels,
            .launches = 0,
            .launches_from = lane.begin,
            .launch = Duration::zero(),
            .units = kind_.units};
  }

  static constexpr auto kIgnore = [](std::uint32_t, Duration, Duration) {};
  static constexpr std::uint8_t kNoLane = 0xFF;
  static constexpr std::array<std::uint8_t, kMaxStreams> no_lanes() {
    std::array<std::uint8_t, kMaxStreams> none{};
    none.fill(kNoLane);
    return none;
  }

  const SoloKind& kind_;
  Duration now_;
  std::int64_t taken_ = 0;
  bool changed_ = false;
  std::uint64_t told_ = 0;
  std::uint32_t count_ = 0, entry_ = 0;
  std::array<Lane, Solo::kMostStreams> lanes_;
  std::array<std::uint8_t, kMaxStreams> lane_of_ = no_lanes();
};

}  // namespace trainyard::engine
