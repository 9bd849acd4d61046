#include "sim/engine/solo/solo_table.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace trainyard::engine {
namespace {

class TableMaker {
 public:
  TableMaker(const SoloKind& kind, std::uint32_t solo, LegIds* ids)
      : kind_(kind),
        program_(*kind.program),
        number_(solo),
        solo_(kind.solos->all()[solo]),
        ids_(ids) {
    const std::size_t ops = solo_.last - solo_.first + 1;
    table_.begin.resize(ops);
    table_.end.resize(ops);
    table_.lead.resize(ops);
    table_.told.reserve(2 * ops);
    table_.told_begin.resize(ops);
    at_.resize(ops);
  }

  SoloTable make() {
    find_ops();
    SoloRun run(kind_, number_, at_.front(), Duration::zero());
    begin(run.entry_lane(), Duration::zero());
    table_.length = run.finish(*this);
    for (std::size_t i = 0; i < at_.size(); ++i)
      table_.lead[i] = kind_.host->op[at_[i]].done - table_.begin[i];
    for (std::size_t i = at_.size() - 1; i-- > 0;)
      table_.lead[i] = std::max(table_.lead[i], table_.lead[i + 1]);
    find_legs();
    return std::move(table_);
  }

  void begin(const SoloRun::Lane& lane, Duration now) {
    const std::uint32_t op = place(lane.at);
    table_.begin[op] = now;
    table_.told_begin[op] = static_cast<std::uint32_t>(table_.told.size());
    tell({now, op, static_cast<std::uint8_t>(lane.stream), false});
  }
  void end(const SoloRun::Lane& lane) {
    const std::uint32_t op = place(lane.at);
    table_.end[op] = lane.end;
    tell({lane.end, op, static_cast<std::uint8_t>(lane.stream), true});
    table_.told[table_.told_begin[op]].slowed = lane.slowed;
  }

 private:
  void tell(SoloTable::Told told) {
    const std::uint32_t before = table_.told.empty() ? 0 : table_.told.back().runs;
    told.runs = before ^ 1U << told.stream;
    table_.told.push_back(told);
  }
  std::uint32_t place(std::uint32_t at) const { return program_.ops[at].index - solo_.first; }

  void find_ops() {
    for (std::uint32_t s = 0; s < program_.streams; ++s) {
      const std::size_t block = std::size_t{solo_.block} * (program_.streams + 1) + s;
      const std::uint32_t last = program_.stream_begin[block + 1];
      std::uint32_t at =
          SoloRun::first_from(program_, program_.stream_begin[block], last, solo_.first);
      for (; at < last && program_.ops[at].index <= solo_.last; ++at)
        at_[place(at)] = at;
    }
  }

  // Where a leg may begin or end.
  void find_legs() {
    const std::size_t ops = at_.size();
    std::vector<Duration> first_after(ops + 1, Duration::max());  // begins of later ops
    for (std::size_t i = ops; i-- > 0;)
      first_after[i] = std::min(first_after[i + 1], table_.begin[i]);
    Duration begun = Duration::min(), ended{};                 // the last of earlier ops
    std::vector<Duration> free(kMaxStreams, Duration::min());  // by stream
    std::size_t from = ops;
    for (std::size_t i = 0; i < ops; ++i) {
      const CompiledOp& op = program_.ops[at_[i]];
      const Duration begin = table_.begin[i];
      const bool by_itself = kind_.solos->entered_at(at_[i]) == number_ && begun < begin &&
                             ended <= begin && first_after[i + 1] >= table_.end[i] &&
                             begin < table_.end[i];
      const bool same_stream = from == ops || program_.ops[at_[from]].stream == op.stream;
      if (by_itself && same_stream && op.kind == OpKind::compute && free[op.stream] == begin) {
        if (from < ops) add_leg(from, i);
        from = i;
      }
      begun = std::max(begun, begin);
      ended = std::max(ended, table_.end[i]);
      free[op.stream] = table_.end[i];
    }
    if (from < ops && begun < table_.length &&
        free[program_.ops[at_[from]].stream] == table_.length)
      add_leg(from, ops);
  }

  void add_leg(std::size_t from, std::size_t until) {
    SoloLeg& leg = table_.legs.emplace_back();
    leg.first = at_[from];
    leg.next = until < at_.size() ? at_[until] : SoloLeg::kNone;
    leg.begin = table_.begin[from];
    leg.end = until < at_.size() ? table_.begin[until] : table_.length;
    struct Change {
      Duration at{};
      bool gives = false;
      std::uint32_t op = 0;
    };
    std::vector<Change> changes;
    for (std::size_t i = from; i < until; ++i) {
      const CompiledOp& op = program_.ops[at_[i]];
      const auto lane = std::find_if(leg.lanes.begin(), leg.lanes.end(),
                                     [&](const auto& known) { return known.stream == op.stream; });
      if (lane == leg.lanes.end())
        leg.lanes.push_back({op.stream, at_[i] + 1});
      else
        lane->until = at_[i] + 1;
      if (op.takes) changes.push_back({table_.begin[i], false, at_[i]});
      if (op.releases) changes.push_back({table_.end[i], true, at_[i]});
      if (op.kind == OpKind::compute) continue;
      const auto known =
          std::find_if(leg.collectives.begin(), leg.collectives.end(),
                       [&](const auto& of) { return program_.ops[of.op].column == op.column; });
      if (known == leg.collectives.end())
        leg.collectives.push_back({at_[i], 1});
      else
        ++known->count;
    }
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.at < b.at; });
    leg.memory = MemoryCourse(program_.program);
    for (const Change& change : changes)
      leg.memory.change(program_.ops[change.op], change.gives, change.at - leg.begin);
    leg.memory.finish(leg.end - leg.begin);
    for (const SoloLeg::Lane& lane : leg.lanes) {
      std::uint32_t ended = 0;
      bool runs = false;
      for (std::size_t i = from; i < until; ++i) {
        if (program_.ops[at_[i]].stream != lane.stream) continue;
        const bool is_over = table_.end[i] - leg.begin <= leg.memory.most_at();
        ended += is_over ? 1 : 0;
        runs |= !is_over && table_.begin[i] - leg.begin <= leg.memory.most_at();
      }
      leg.memory.stream_at_most(lane.stream, ended, runs);
      leg.last.push_back(program_.ops[lane.until - 1].index - program_.ops[leg.first].index);
    }
    if (ids_ != nullptr) leg.id = ids_->of(told(from, until, leg.begin));
  }

  // All that tells the ops of a leg from those of others.
  std::vector<std::int64_t> told(std::size_t from, std::size_t until, Duration begin) const {
    const Program& program = *program_.program;
    std::vector<std::int64_t> told;
    for (std::size_t i = from; i < until; ++i) {
      const Op& op = program.blocks[solo_.block].ops[program_.ops[at_[i]].index];
      const bool computes = op.kind == OpKind::compute;
      told.push_back(op.group << 16 | op.part << 8 | op.stream);
      told.push_back(op.waits);
      told.push_back((table_.begin[i] - begin).count());
      told.push_back((table_.end[i] - begin).count());
      const Segment segment = computes ? program.segments[op.subject] : Segment();
      told.push_back(computes ? std::int64_t{segment.kernels} : -1);
      const auto kernels = program.kernels.begin() + segment.first_kernel;
      told.insert(told.end(), kernels, kernels + segment.kernels);
    }
    return told;
  }

  const SoloKind& kind_;
  const CompiledProgram& program_;
  std::uint32_t number_;
  const Solo& solo_;
  LegIds* ids_;
  SoloTable table_;
  std::vector<std::uint32_t> at_;  // by op, as SoloTable::begin, into CompiledProgram::ops
};

}  // namespace

SoloTable solo_table(const SoloKind& kind, std::uint32_t solo, LegIds* ids) {
  return TableMaker(kind, solo, ids).make();
}

}  // namespace trainyard::engine
