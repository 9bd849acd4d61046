#include "sim/simulate/report/breakdown.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "sim/base/check.h"
#include "sim/plan/program_builder.h"

namespace trainyard::simulate {

using engine::KernelSpan;
using engine::Span;
using plan::OpGroup;
using plan::StreamKind;

namespace {

Duration& at(Breakdown& breakdown, TimeCategory category) {
  return breakdown[static_cast<std::size_t>(category)];
}

TimeCategory exposed_by(OpGroup group) {
  switch (group) {
    case OpGroup::tensor: return TimeCategory::exposed_tp;
    case OpGroup::context: return TimeCategory::exposed_cp;
    case OpGroup::expert: return TimeCategory::exposed_ep;
    case OpGroup::data: return TimeCategory::exposed_dp;
    case OpGroup::pipeline: return TimeCategory::exposed_pp;
    case OpGroup::host_optimizer: return TimeCategory::host_optimizer;
    case OpGroup::host_copy: return TimeCategory::exposed_host_copy;
    case OpGroup::compute:
    case OpGroup::recompute:
    case OpGroup::optimizer: break;
  }
  TRAINYARD_CHECK(false, "compute is no transfer");
  return TimeCategory::bubble;
}

constexpr unsigned kGathers =
    stream_bit(StreamKind::gather) | stream_bit(StreamKind::gather_second);

constexpr unsigned kHostCopies =
    stream_bit(StreamKind::to_host) | stream_bit(StreamKind::to_device) |
    stream_bit(StreamKind::nvme_read) | stream_bit(StreamKind::nvme_write);

class Accountant {
 public:
  Accountant(const plan::Role& stage, std::span<const Span> spans,
             std::span<const KernelSpan> kernels, Duration end)
      : program_(stage.program), kernels_(kernels), end_(end) {
    for (const Span& span : spans)
      streams_[op(span).stream].push_back(&span);
  }

  Breakdown run() {
    Duration now{};
    for (const Span* span : streams_[static_cast<std::size_t>(StreamKind::compute)]) {
      account_gap(now, *span);
      now = std::min(span->begin, end_);
      if (span->begin >= end_) break;
      account_kernels(*span);
      now = std::min(span->end, end_);
    }
    // What is still in flight when compute is done belongs to the step as well.
    account_tail(now);
    return result_;
  }

 private:
  struct Interval {
    Duration begin, end;
    TimeCategory category;
  };

  const engine::Op& op(const Span& span) const {
    return program_.blocks[program_.calls[span.call].block].ops[span.op];
  }
  static bool enqueued_before(const Span& a, const Span& b) {
    return a.call != b.call ? a.call < b.call : a.op < b.op;
  }

  // The transfers in flight during [begin, end) among those `waits` names, enqueued before `until`
  // if given.
  const std::vector<Interval>& in_flight(Duration begin, Duration end, unsigned waits,
                                         const Span* until) {
    intervals_.clear();
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if ((waits >> s & 1U) == 0) continue;
      const std::vector<const Span*>& stream = streams_[s];
      std::size_t& next = next_[s];
      while (next < stream.size() && stream[next]->end <= begin)
        ++next;
      for (std::size_t i = next; i < stream.size() && stream[i]->begin < end; ++i) {
        const Span& span = *stream[i];
        if (until != nullptr && !enqueued_before(span, *until)) break;
        if (s == static_cast<std::size_t>(StreamKind::compute)) continue;
        // An answer of data parallelism is under way from the question on.
        const bool answers = op(span).kind == engine::OpKind::receive &&
                             static_cast<OpGroup>(op(span).group) == OpGroup::data;
        const Duration from = std::max(begin, answers ? span.begin : span.active);
        const Duration to = std::min(end, span.end);
        if (from < to)
          intervals_.push_back({from, to, exposed_by(static_cast<OpGroup>(op(span).group))});
      }
    }
    return intervals_;
  }

  // Consecutive intervals of which each begins when the one before has ended.
  void find_runs(std::span<const Interval> intervals) {
    runs_.clear();
    if (intervals.empty()) return;
    for (std::size_t first = 0, i = 1; i <= intervals.size(); ++i) {
      if (i < intervals.size() && intervals[i - 1].end <= intervals[i].begin) continue;
      runs_.push_back(intervals.subspan(first, i - first));
      first = i;
    }
  }

  // [begin, end) in pieces on which nothing changes; the first interval that covers a piece names
  // it. Time: as that of sorting them, for those of a stream are one run.
  void account(Duration begin, Duration end, const std::vector<Interval>& intervals,
               Duration issued) {
    std::vector<Duration>& cuts = cuts_;
    cuts = {begin, end};
    if (begin < issued && issued < end) cuts.push_back(issued);
    for (const Interval& interval : intervals) {
      cuts.push_back(interval.begin);
      cuts.push_back(interval.end);
    }
    find_runs(intervals);
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i] == cuts[i + 1]) continue;
      TimeCategory category = cuts[i] < issued ? TimeCategory::host : TimeCategory::bubble;
      bool covered = false;
      for (std::span<const Interval>& run : runs_) {
        while (!run.empty() && run.front().end <= cuts[i])
          run = run.subspan(1);
        if (covered || run.empty() || run.front().begin > cuts[i]) continue;
        category = run.front().category;
        covered = true;
      }
      at(result_, category) += cuts[i + 1] - cuts[i];
    }
  }

  void account_gap(Duration begin, const Span& next) {
    const Duration end = std::min(next.begin, end_);
    if (begin == end) return;
    unsigned waits = op(next).waits;
    // Gathers stand in line with the reductions of the same group, and wait for shards on their way
    // to the device; what is copied there may have to be copied from there first.
    if ((waits & kGathers) != 0)
      waits |= kGathers | stream_bit(StreamKind::data) | stream_bit(StreamKind::to_device);
    if ((waits & kHostCopies) != 0) waits |= kHostCopies;
    account(begin, end, in_flight(begin, end, waits, &next), next.issued);
  }

  void account_tail(Duration begin) {
    if (begin == end_) return;
    account(begin, end_, in_flight(begin, end_, ~0U, nullptr), Duration(0));
  }

  // Inside an op only the host can keep the next kernel from starting. Kernels that it cannot keep
  // are not recorded.
  void account_kernels(const Span& span) {
    const bool optimizer = static_cast<OpGroup>(op(span).group) == OpGroup::optimizer;
    // Kernels beside the compute stream are part of what it waits for.
    while (next_kernel_ < kernels_.size() &&
           std::pair(kernels_[next_kernel_].call, kernels_[next_kernel_].op) <
               std::pair(span.call, span.op))
      ++next_kernel_;
    const bool recorded = next_kernel_ < kernels_.size() &&
                          kernels_[next_kernel_].call == span.call &&
                          kernels_[next_kernel_].op == span.op;
    Duration running{};
    if (!recorded && program_.segments[op(span).subject].kernels > 0)
      running = std::min(span.end, end_) - span.begin;
    while (next_kernel_ < kernels_.size() && kernels_[next_kernel_].call == span.call &&
           kernels_[next_kernel_].op == span.op) {
      running +=
          std::min(kernels_[next_kernel_].end, end_) - std::min(kernels_[next_kernel_].begin, end_);
      ++next_kernel_;
    }
    at(result_, optimizer ? TimeCategory::optimizer : TimeCategory::compute) += running;
    at(result_, TimeCategory::host) += std::min(span.end, end_) - span.begin - running;
  }

  const engine::Program& program_;
  std::span<const KernelSpan> kernels_;
  Duration end_;
  std::array<std::vector<const Span*>, engine::kMaxStreams> streams_;
  std::array<std::size_t, engine::kMaxStreams> next_{};
  std::size_t next_kernel_ = 0;
  Breakdown result_{};

  // Of the gap that is accounted, kept for their memory.
  std::vector<Interval> intervals_;
  std::vector<Duration> cuts_;
  std::vector<std::span<const Interval>> runs_;
};

}  // namespace

Breakdown breakdown(const plan::Role& stage, std::span<const Span> spans,
                    std::span<const KernelSpan> kernels, Duration end) {
  const Breakdown result = Accountant(stage, spans, kernels, end).run();
  Duration sum{};
  for (const Duration part : result)
    sum += part;
  TRAINYARD_CHECK(sum == end, "the breakdown adds up to {} ps of {} ps", sum.count(), end.count());
  return result;
}

}  // namespace trainyard::simulate
