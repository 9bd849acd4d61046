#include "sim/simulate/report/breakdown.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "sim/base/check.h"
#include "sim/plan/program_builder.h"

namespace trainyard::simulate {

using engine::KernelSpan;
using engine::OpKind;
using engine::Span;
using plan::OpGroup;
using plan::StreamKind;

namespace {

TimeCategory exposed_by(OpGroup group) {
  switch (group) {
    case OpGroup::tensor: return TimeCategory::exposed_tp;
    case OpGroup::context: return TimeCategory::exposed_cp;
    case OpGroup::expert: return TimeCategory::exposed_ep;
    case OpGroup::data: return TimeCategory::exposed_dp;
    case OpGroup::pipeline: return TimeCategory::exposed_pp;
    case OpGroup::host_optimizer: return TimeCategory::host_optimizer;
    case OpGroup::host_copy: return TimeCategory::exposed_host_copy;
    case OpGroup::input: return TimeCategory::input;
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

// The streams whose transfers can be what an op waited for.
unsigned waited_for(unsigned waits) {
  // Gathers stand in line with the reductions of the same group, and wait for shards on their way
  // to the device; what is copied there may have to be copied from there first.
  if ((waits & kGathers) != 0)
    waits |= kGathers | stream_bit(StreamKind::data) | stream_bit(StreamKind::to_device);
  if ((waits & kHostCopies) != 0) waits |= kHostCopies;
  if ((waits & stream_bit(StreamKind::data)) != 0) waits |= stream_bit(StreamKind::agreement);
  return waits & ~stream_bit(StreamKind::compute);
}

// Of the ops of a block, in their order: a transfer that an op waits for may itself have waited for
// another, as a gather of activations does for that of the parameters behind it.
class WaitedThrough {
 public:
  struct Streams {
    unsigned streams = 0;
    std::uint32_t until = 0;  // into the block: for their ops before that one
  };
  Streams next(const engine::Op& op, unsigned waited, std::uint32_t at) {
    Streams through;
    for (unsigned waits = waited; waits != 0; waits &= waits - 1) {
      const Streams& before = before_[static_cast<std::size_t>(std::countr_zero(waits))];
      through.streams |= before.streams & ~waited;
      through.until = std::max(through.until, before.until);
    }
    if (op.stream != static_cast<std::uint8_t>(StreamKind::compute)) {
      const unsigned own = op.waits & ~stream_bit(StreamKind::compute);
      if (own != 0)
        before_[op.stream] = {before_[op.stream].streams | own | through.streams, at};
      return through;
    }
    // What it waited for is over when it ends.
    for (unsigned waits = op.waits; waits != 0; waits &= waits - 1)
      before_[static_cast<std::size_t>(std::countr_zero(waits))] = {};
    return through;
  }

 private:
  std::array<Streams, engine::kMaxStreams> before_{};  // by stream, of its ops so far
};

}  // namespace

StreamIndex::StreamIndex(const engine::Program& program) : program_(program) {
  const auto all = static_cast<unsigned>((std::uint64_t{1} << program.streams.size()) - 1);
  std::vector<std::uint32_t> begins;
  for (const engine::Block& block : program.blocks) {
    begins.push_back(static_cast<std::uint32_t>(ops_.size()));
    WaitedThrough chain;
    for (const engine::Op& op : block.ops) {
      const auto group = static_cast<OpGroup>(op.group);
      const bool computes = op.kind == OpKind::compute;
      const unsigned waited = waited_for(op.waits) & all;
      const WaitedThrough::Streams through =
          chain.next(op, waited, static_cast<std::uint32_t>(&op - block.ops.data()));
      busy_ |= 1U << op.stream;
      ops_.push_back(
          {.waited = waited,
           .through = through.streams,
           .through_until = through.until,
           .waits = op.waits,
           .stream = op.stream,
           .group = op.group,
           // An answer of data parallelism is under way from the question on, as is a batch of
           // input.
           .is_answer =
               op.kind == OpKind::receive && (group == OpGroup::data || group == OpGroup::input),
           .has_kernels = computes && program.segments[op.subject].kernels > 0,
           .on_compute_stream = op.stream == static_cast<std::uint8_t>(StreamKind::compute)});
    }
    std::vector<std::uint32_t>& first =
        first_.emplace_back(std::vector<std::uint32_t>(program.streams.size(), kUnknown));
    for (auto o = static_cast<std::uint32_t>(block.ops.size()); o-- > 0;) {
      ops_[begins.back() + o].next = first[block.ops[o].stream];
      first[block.ops[o].stream] = o;
    }
  }
  first_op_.reserve(program.calls.size());
  for (const engine::Call& call : program.calls)
    first_op_.push_back(begins[call.block]);
}

void StreamIndex::find(std::uint32_t stream, Place& place) const {
  for (; place.op == kUnknown && place.call < program_.calls.size(); ++place.call) {
    place.op = first_[program_.calls[place.call].block][stream];
    if (place.op != kUnknown) return;
  }
}

void Accountant::Stream::add(const Ended& op, Duration needed_from) {
  while (first_ < ended_.size() && ended_[first_].end <= needed_from)
    ++first_;
  if (first_ == ended_.size()) {
    ended_.clear();
    first_ = 0;
  } else if (2 * first_ >= ended_.size()) {
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  ended_.push_back(op);
}

std::span<const Accountant::Ended> Accountant::Stream::since(Duration begin) {
  while (first_ < ended_.size() && ended_[first_].end <= begin)
    ++first_;
  return std::span(ended_).subspan(first_);
}

void Accountant::Stream::walk(engine::StateWalk& walk, std::uint32_t actor, Duration needed_from) {
  std::size_t first = first_;
  while (first < ended_.size() && ended_[first].end <= needed_from)
    ++first;
  walk.same(static_cast<std::int64_t>(ended_.size() - first));
  for (std::size_t i = first; i < ended_.size(); ++i) {
    walk.call(actor, ended_[i].call);
    walk.same(ended_[i].op);
    walk.time(ended_[i].begin);
    walk.time(ended_[i].from);
    walk.time(ended_[i].end);
  }
}

Accountant::Accountant(const StreamIndex& index, const StepWindow& window, GapObserver* gaps)
    : index_(index),
      window_(window),
      observer_(gaps),
      all_(static_cast<unsigned>((std::uint64_t{1} << index.program().streams.size()) - 1)),
      streams_(index.program().streams.size()) {}

void Accountant::add(TimeCategory category, Duration begin, Duration end) {
  result_[static_cast<std::size_t>(category)] += window_.part(begin, end);
  if (observer_ != nullptr) observer_->waited(category, begin, end);
}

// Kernels beside the compute stream are part of what it waits for.
void Accountant::kernel_ended(const KernelSpan& kernel) {
  if (!index_.op(kernel.call, kernel.op).on_compute_stream) return;
  running_ += window_.part(kernel.begin, kernel.end);
  held_ = true;
}

void Accountant::op_ended(const Span& span) {
  const StreamIndex::OfOp& op = index_.op(span.call, span.op);
  Stream& stream = streams_[op.stream];
  stream.next = index_.after(op, span.call);
  told_of_ |= 1U << op.stream;
  if (!op.on_compute_stream) {
    stream.add({.begin = span.begin,
                .from = op.is_answer ? span.begin : span.active,
                .end = span.end,
                .call = span.call,
                .op = span.op,
                .group = op.group},
               gaps_.empty() ? free_ : gaps_.front().begin);
    if (!gaps_.empty()) account_known_gaps();
    return;
  }
  if (free_ < span.begin) {
    const Gap gap{free_, span};
    account_known_gaps();
    if (!gaps_.empty() || !account_if_known(gap)) gaps_.push_back(gap);
  }
  account_kernels(span, op);
  free_ = span.end;
}

void Accountant::begin_leg() {
  before_ = result_;
  told_of_ = asked_ = 0;
}

std::optional<Breakdown> Accountant::end_leg() {
  if ((asked_ & index_.busy() & ~told_of_) != 0) return std::nullopt;
  Breakdown parts{};
  for (std::size_t c = 0; c < result_.size(); ++c)
    parts[c] = result_[c] - before_[c];
  return parts;
}

void Accountant::add(const Breakdown& parts, const engine::Leg& leg) {
  for (std::size_t c = 0; c < result_.size(); ++c)
    result_[c] += parts[c];
  for (const std::uint32_t last : leg.last) {
    const StreamIndex::OfOp& op = index_.op(leg.call, leg.first + last);
    streams_[op.stream].next = index_.after(op, leg.call);
  }
  free_ = leg.end;
}

void Accountant::walk(engine::StateWalk& walk, std::uint32_t actor) {
  const Duration needed_from = gaps_.empty() ? free_ : gaps_.front().begin;
  walk.oldest(actor, needed_from);
  for (std::uint32_t s = 0; s < streams_.size(); ++s) {
    streams_[s].walk(walk, actor, needed_from);
    index_.find(s, streams_[s].next);
    walk.call(actor, streams_[s].next.call);
    walk.same(streams_[s].next.op);
  }
  walk.same(static_cast<std::int64_t>(gaps_.size()));
  for (Gap& gap : gaps_) {
    // What was issued before the gap had begun could have been so at any time.
    walk.same(std::max<std::int64_t>(0, (gap.next.issued - gap.begin).count()));
    walk.carry(gap.next.issued);
    walk.time(gap.begin);
    walk.call(actor, gap.next.call);
    walk.same(gap.next.op);
    walk.time(gap.next.begin);
    walk.time(gap.next.active);
    walk.time(gap.next.end);
  }
  walk.moment(free_);
  walk.same(running_.count());
  walk.same(held_ ? 1 : 0);
  for (Duration& part : result_)
    walk.sum(part);
}

// What the op itself waited for has ended; of the other streams all that was enqueued before
// `until` must have.
bool Accountant::is_known(const Gap& gap, unsigned streams, std::uint32_t until) {
  for (; streams != 0; streams &= streams - 1) {
    const auto s = static_cast<std::uint32_t>(std::countr_zero(streams));
    StreamIndex::Place& next = streams_[s].next;
    index_.find(s, next);
    if (next < StreamIndex::Place{gap.next.call, until}) return false;
  }
  return true;
}

bool Accountant::account_if_known(const Gap& gap) {
  const StreamIndex::OfOp& op = index_.op(gap.next.call, gap.next.op);
  if (!is_known(gap, op.waited & ~op.waits, gap.next.op)) return false;
  if (!is_known(gap, op.through, op.through_until)) return false;
  asked_ |= op.waited | op.through;
  intervals_.clear();
  add_in_flight(gap.begin, gap.next.begin, op.waited, {gap.next.call, gap.next.op});
  add_in_flight(gap.begin, gap.next.begin, op.through, {gap.next.call, op.through_until});
  account(gap.begin, gap.next.begin, gap.next.issued);
  return true;
}

void Accountant::account_known_gaps() {
  while (!gaps_.empty() && account_if_known(gaps_.front()))
    gaps_.pop_front();
}

// To the intervals, the transfers in flight during [begin, end) of these streams that were enqueued
// before `until`.
void Accountant::add_in_flight(Duration begin, Duration end, unsigned streams,
                               const StreamIndex::Place& until) {
  for (streams &= all_; streams != 0; streams &= streams - 1) {
    const auto s = static_cast<std::size_t>(std::countr_zero(streams));
    for (const Ended& op : streams_[s].since(begin)) {
      if (op.begin >= end || StreamIndex::Place{op.call, op.op} >= until) break;
      const Duration from = std::max(begin, op.from);
      const Duration to = std::min(end, op.end);
      if (from < to) intervals_.push_back({from, to, exposed_by(static_cast<OpGroup>(op.group))});
    }
  }
}

// Consecutive intervals of which each begins when the one before has ended.
void Accountant::find_runs() {
  runs_.clear();
  const std::span<const Interval> intervals = intervals_;
  if (intervals.empty()) return;
  for (std::size_t first = 0, i = 1; i <= intervals.size(); ++i) {
    if (i < intervals.size() && intervals[i - 1].end <= intervals[i].begin) continue;
    runs_.push_back(intervals.subspan(first, i - first));
    first = i;
  }
}

// [begin, end), in which no transfer is in flight.
void Accountant::account_idle(Duration begin, Duration end, Duration issued) {
  const Duration host = std::clamp(issued, begin, end);
  if (begin < host) add(TimeCategory::host, begin, host);
  if (host < end) add(TimeCategory::bubble, host, end);
}

// [begin, end) in pieces on which nothing changes; the first interval that covers a piece names it.
// Time: as that of sorting them, for those of a stream are one run.
void Accountant::account(Duration begin, Duration end, Duration issued) {
  find_runs();
  if (runs_.size() <= 1) {
    for (const Interval& interval : intervals_) {
      account_idle(begin, interval.begin, issued);
      add(interval.category, interval.begin, interval.end);
      begin = interval.end;
    }
    return account_idle(begin, end, issued);
  }
  cuts_ = {begin, end};
  if (begin < issued && issued < end) cuts_.push_back(issued);
  for (const Interval& interval : intervals_) {
    cuts_.push_back(interval.begin);
    cuts_.push_back(interval.end);
  }
  std::sort(cuts_.begin(), cuts_.end());
  for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
    if (cuts_[i] == cuts_[i + 1]) continue;
    TimeCategory category = cuts_[i] < issued ? TimeCategory::host : TimeCategory::bubble;
    bool covered = false;
    for (std::span<const Interval>& run : runs_) {
      while (!run.empty() && run.front().end <= cuts_[i])
        run = run.subspan(1);
      if (covered || run.empty() || run.front().begin > cuts_[i]) continue;
      category = run.front().category;
      covered = true;
    }
    add(category, cuts_[i], cuts_[i + 1]);
  }
}

// Inside an op only the host can keep the next kernel from starting. Of kernels that it cannot keep
// nothing was told.
void Accountant::account_kernels(const Span& span, const StreamIndex::OfOp& op) {
  const Duration whole = window_.part(span.begin, span.end);
  if (!held_ && op.has_kernels) running_ = whole;
  const bool optimizer = static_cast<OpGroup>(op.group) == OpGroup::optimizer;
  result_[static_cast<std::size_t>(optimizer ? TimeCategory::optimizer : TimeCategory::compute)] +=
      running_;
  result_[static_cast<std::size_t>(TimeCategory::host)] += whole - running_;
  running_ = Duration(0);
  held_ = false;
}

Breakdown Accountant::finish(Duration end) {
  account_known_gaps();
  TRAINYARD_CHECK(gaps_.empty(), "{} gaps wait for transfers that have not ended", gaps_.size());
  // What is still in flight when compute is done belongs to the step as well.
  if (free_ < end) {
    intervals_.clear();
    add_in_flight(free_, end, ~stream_bit(StreamKind::compute),
                  {std::numeric_limits<std::uint32_t>::max(), 0});
    account(free_, end, Duration(0));
  }
  Duration sum{};
  for (const Duration part : result_)
    sum += part;
  TRAINYARD_CHECK(sum == window_.part(Duration(0), end), "the breakdown adds up to {} ps of {} ps",
                  sum.count(), window_.part(Duration(0), end).count());
  return result_;
}

}  // namespace trainyard::simulate
