#include "sim/engine/solo/solos.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace trainyard::engine {

// The streams that have ops, by a number of their own: most have none.
class BusyStreams {
 public:
  explicit BusyStreams(const CompiledProgram& program) {
    for (const CompiledOp& op : program.ops)
      if (number_[op.stream] == kIdle) number_[op.stream] = static_cast<std::uint8_t>(count_++);
  }
  std::uint32_t count() const { return count_; }
  std::uint32_t number(std::uint32_t stream) const { return number_[stream]; }
  // The same for a set of streams.
  std::uint32_t numbers(std::uint32_t streams) const {
    std::uint32_t numbers = 0;
    for (; streams != 0; streams &= streams - 1) {
      const std::uint8_t number = number_[static_cast<std::size_t>(std::countr_zero(streams))];
      if (number != kIdle) numbers |= 1U << number;
    }
    return numbers;
  }

 private:
  static constexpr std::uint8_t kIdle = 0xFF;
  static constexpr std::array<std::uint8_t, kMaxStreams> all_idle() {
    std::array<std::uint8_t, kMaxStreams> none{};
    none.fill(kIdle);
    return none;
  }

  std::uint32_t count_ = 0;
  std::array<std::uint8_t, kMaxStreams> number_ = all_idle();
};

namespace {

// Of fewer ops an event each is no more work.
constexpr std::uint32_t kFewest = 6;

// So often an op is looked at, in the mean, for solos that are shorter, so that the time to find
// them grows with the ops of a block, not with their square.
constexpr std::size_t kMostInVain = 4;

// What is known of an op of a block from the program alone; streams by BusyStreams.
struct Known {
  const CompiledOp* op = nullptr;
  std::uint32_t at = 0;  // into CompiledProgram::ops
  std::uint32_t stream = 0;
  std::uint32_t waits = 0;
  bool alone = false;  // concerns nobody else
};

// The ops of one block, and what of each stream has ended when one begins. `kWidth`: at least as
// many as there are streams, a number that the compiler knows, for rows at once.
template <std::size_t kWidth>
class BlockView {
 public:
  using Row = std::array<std::int32_t, kWidth>;  // by stream

  BlockView(const CompiledProgram& program, const BusyStreams& busy, std::uint32_t block,
            std::uint64_t alone) {
    const std::vector<Op>& source = program.program->blocks[block].ops;
    const auto begins =
        program.stream_begin.begin() + std::ptrdiff_t{block} * (program.streams + 1);
    std::vector<std::uint32_t> next(begins, begins + program.streams + 1);
    ops_.reserve(source.size());
    for (const Op& op : source) {
      Known& known = ops_.emplace_back();
      known.at = next[op.stream]++;
      known.op = &program.ops[known.at];
      known.stream = busy.number(op.stream);
      known.waits = busy.numbers(op.waits);
      known.alone = op.kind == OpKind::compute
                        ? !op.drained
                        : op.kind == OpKind::collective && known.op->column < 64 &&
                              (alone >> known.op->column & 1) != 0;
    }
    find_ended();
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(ops_.size()); }
  const Known& operator[](std::uint32_t i) const { return ops_[i]; }
  // Ops of each stream before op i.
  const Row& before(std::uint32_t i) const { return before_[i]; }
  // Of these, those known to have ended when it begins; -1: not even those of earlier calls.
  const Row& ended(std::uint32_t i) const { return ended_[i]; }
  // Streams of which not all of these have.
  std::uint32_t open(std::uint32_t i) const { return open_[i]; }

 private:
  void find_ended() {
    Row count{}, none;
    none.fill(-1);
    before_.resize(ops_.size());
    ended_.resize(ops_.size());
    open_.resize(ops_.size());
    std::array<std::uint32_t, kWidth> tail;
    tail.fill(Solos::kNone);
    for (std::uint32_t i = 0; i < ops_.size(); ++i) {
      before_[i] = count;
      const std::uint32_t own = ops_[i].stream;
      std::uint32_t sees = ops_[i].waits | 1U << own;
      Row& known = ended_[i];
      // As a rule it waits for the op before it, and that one has waited for all others.
      const bool is_next = i > 0 && (sees >> ops_[i - 1].stream & 1) != 0;
      known = is_next ? ended_[i - 1] : none;
      std::uint32_t open = is_next ? open_[i - 1] : kAll;
      const auto has_ended = [&](std::uint32_t stream) {
        known[stream] = count[stream];
        open &= ~(1U << stream);
        sees &= ~(1U << stream);
      };
      if (is_next) has_ended(ops_[i - 1].stream);
      while (sees != 0) {
        const auto s = static_cast<std::uint32_t>(std::countr_zero(sees));
        if (tail[s] != Solos::kNone && known[s] < count[s]) {
          for (std::size_t u = 0; u < kWidth; ++u)
            known[u] = std::max(known[u], ended_[tail[s]][u]);
          open = 0;
          for (std::size_t u = 0; u < kWidth; ++u)
            open |= static_cast<std::uint32_t>(known[u] < count[u]) << u;
        }
        has_ended(s);
      }
      open_[i] = open;
      // A row at once: it is read as one right behind.
      for (std::uint32_t u = 0; u < kWidth; ++u)
        count[u] += u == own ? 1 : 0;
      tail[own] = i;
    }
  }

  static constexpr std::uint32_t kAll = kWidth < 32 ? (1U << kWidth % 32) - 1 : ~std::uint32_t{0};

  std::vector<Known> ops_;
  std::vector<Row> before_, ended_;  // by op
  std::vector<std::uint32_t> open_;
};

// By stream: those that every op waits for, or is of, that can tell whether the stream's ops of
// earlier calls have ended.
std::vector<std::uint32_t> told_by_later_calls(const Program& program, const BusyStreams& busy) {
  std::vector<std::uint32_t> told(busy.count(), 0xFFFFFFFF);
  for (const Block& block : program.blocks) {
    std::uint32_t seen = 0;  // streams with ops in this block so far
    for (const Op& op : block.ops) {
      const std::uint32_t own = 1U << busy.number(op.stream);
      const std::uint32_t sees = busy.numbers(op.waits) | own;
      for (std::uint32_t bits = sees & ~seen; bits != 0; bits &= bits - 1)
        told[static_cast<std::size_t>(std::countr_zero(bits))] &= sees;
      seen |= own;
    }
  }
  return told;
}

template <std::size_t kWidth>
class SoloFinder {
 public:
  SoloFinder(const BlockView<kWidth>& view, const std::vector<std::uint32_t>& told_later)
      : view_(view), told_later_(told_later) {
    find_told();
    find_first();
  }

  // From op i on as far as nobody else is concerned, but not beyond `until`; behind the last.
  std::uint32_t extent(std::uint32_t first, std::uint32_t until) const {
    std::uint32_t streams = 0;
    std::uint32_t i = first;
    for (; i < until && view_[i].alone; ++i) {
      if ((streams >> view_[i].stream & 1) == 0) {
        streams |= 1U << view_[i].stream;
        if (std::popcount(streams) > Solo::kMostStreams) break;
      }
      if (i > first && !outside_has_ended(first, i, streams)) break;
    }
    return i;
  }
  // Whether op i begins when all of [first, i) have ended.
  bool begins_alone(std::uint32_t first, std::uint32_t i) const { return first >= begins_from_[i]; }
  // Behind the last op of the longest solo from `first` on: one that begins alone and of which
  // nobody behind it, as it ends last, can tell when the others did. `first`: there is none.
  // `looked`: behind the ops that were looked at.
  std::uint32_t end(std::uint32_t first, std::uint32_t& looked) const {
    looked = first;
    if (!view_[first].alone) return first;
    const auto least = least_end_from_.begin();
    const auto behind = std::partition_point(least + first, least + alone_until_[first],
                                             [&](std::uint32_t from) { return from <= first; });
    const auto last = static_cast<std::uint32_t>(behind - least);
    std::uint32_t until = looked = extent(first, last);
    if (until == last) return last;
    while (until > first && first < ends_from_[until - 1])
      --until;
    return until;
  }

 private:
  // From which op on a solo may begin of which op i is one that begins alone, and of which it is
  // the last: behind the last ones of streams that have not ended, or that others hear of.
  void find_first() {
    begins_from_.resize(view_.size());
    ends_from_.resize(view_.size());
    std::array<std::uint32_t, kWidth> behind{};  // the last op so far, by stream
    const auto last_of = [&](std::uint32_t streams) {
      std::uint32_t last = 0;
      for (; streams != 0; streams &= streams - 1)
        last = std::max(last, behind[static_cast<std::size_t>(std::countr_zero(streams))]);
      return last;
    };
    std::uint32_t seen = 0;  // streams with ops so far
    for (std::uint32_t i = 0; i < view_.size(); ++i) {
      begins_from_[i] = last_of(view_.open(i) & seen);
      ends_from_[i] = std::max(begins_from_[i], last_of(told_[i] & ~view_.open(i) & seen));
      behind[view_[i].stream] = i + 1;
      seen |= 1U << view_[i].stream;
    }
    least_end_from_ = ends_from_;
    alone_until_.resize(view_.size());
    for (std::uint32_t i = view_.size(); i-- > 0;) {
      const bool is_last = i + 1 == view_.size() || !view_[i + 1].alone;
      alone_until_[i] = is_last ? i + 1 : alone_until_[i + 1];
      if (!is_last) least_end_from_[i] = std::min(ends_from_[i], least_end_from_[i + 1]);
    }
  }
  // By op: streams other than its own of which somebody behind it, who has not waited for it, can
  // tell when their ops before it ended.
  void find_told() {
    std::array<std::uint32_t, kWidth> told{};  // [u]: streams s that ops behind can tell u's by
    for (std::size_t s = 0; s < told_later_.size(); ++s)
      for (std::size_t u = 0; u < kWidth; ++u)
        told[u] |= (~told_later_[s] >> u & 1) << s;
    told_.resize(view_.size());
    for (std::uint32_t i = view_.size(); i-- > 0;) {
      const std::uint32_t own = 1U << view_[i].stream, sees = view_[i].waits | own;
      told_[i] = told[view_[i].stream] & ~own;
      for (std::size_t u = 0; u < kWidth; ++u) {
        if ((sees >> u & 1) != 0)
          told[u] &= ~own;
        else
          told[u] |= sees;
      }
    }
  }
  // Whether what op i waits for outside of a solo had ended when that began.
  bool outside_has_ended(std::uint32_t first, std::uint32_t i, std::uint32_t streams) const {
    for (std::uint32_t bits = view_[i].waits & ~streams; bits != 0; bits &= bits - 1) {
      const auto s = static_cast<std::uint32_t>(std::countr_zero(bits));
      if (view_.ended(first)[s] < view_.before(i)[s]) return false;
    }
    return true;
  }

  const BlockView<kWidth>& view_;
  const std::vector<std::uint32_t>& told_later_;
  std::vector<std::uint32_t> told_, begins_from_, ends_from_;
  std::vector<std::uint32_t> alone_until_;     // by op that is alone: behind the last after it
  std::vector<std::uint32_t> least_end_from_;  // the same: the least of ends_from_ of these
};

}  // namespace

Solos::Solos(const CompiledProgram& program, std::uint64_t alone)
    : entered_(program.ops.size(), kNone) {
  const BusyStreams busy(program);
  if (busy.count() <= 8)
    find<8>(program, busy, alone);
  else if (busy.count() <= 16)
    find<16>(program, busy, alone);
  else
    find<kMaxStreams>(program, busy, alone);
}

template <std::size_t kWidth>
void Solos::find(const CompiledProgram& program, const BusyStreams& busy, std::uint64_t alone) {
  const std::vector<std::uint32_t> told_later = told_by_later_calls(*program.program, busy);
  for (std::uint32_t block = 0; block < program.program->blocks.size(); ++block) {
    const BlockView<kWidth> view(program, busy, block, alone);
    const SoloFinder<kWidth> finder(view, told_later);
    std::size_t in_vain = 0;
    for (std::uint32_t first = 0; first < view.size();) {
      std::uint32_t looked = first;
      const std::uint32_t end = finder.end(first, looked);
      const bool is_short = end < first + kFewest;
      in_vain += looked - (is_short ? first : end);
      const std::uint32_t next =
          std::max({in_vain > kMostInVain * view.size() ? looked : end, end, first + 1});
      if (is_short) {
        first = next;
        continue;
      }
      Solo solo{.block = block,
                .first = first,
                .last = end - 1,
                .first_end = static_cast<std::uint32_t>(ends_.size())};
      std::vector<std::uint32_t> ends(program.streams);
      for (std::uint32_t i = first; i < end; ++i) {
        const std::uint8_t stream = view[i].op->stream;
        solo.streams |= 1U << stream;
        if (view[i].op->kind != OpKind::compute)
          solo.columns |= std::uint64_t{1} << view[i].op->column;
        ends[stream] = view[i].at + 1;
        if (end - i >= kFewest && finder.begins_alone(first, i))
          entered_[view[i].at] = static_cast<std::uint32_t>(solos_.size());
      }
      for (std::uint32_t bits = solo.streams; bits != 0; bits &= bits - 1)
        ends_.push_back(ends[static_cast<std::size_t>(std::countr_zero(bits))]);
      solos_.push_back(solo);
      first = next;
    }
  }
}

}  // namespace trainyard::engine
