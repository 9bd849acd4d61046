#include "sim/engine/solo/solo_table.h"

#include <algorithm>
#include <bit>
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
    table_.ops.resize(ops);
  }

  SoloTable make() {
    find_ops();
    SoloRun run(kind_, number_, table_.ops.front(), Duration::zero());
    begin(run.entry_lane(), Duration::zero());
    table_.length = run.finish(*this);
    for (std::size_t i = 0; i < table_.ops.size(); ++i)
      table_.lead[i] = kind_.host->op[table_.ops[i]].done - table_.begin[i];
    for (std::size_t i = table_.ops.size() - 1; i-- > 0;)
      table_.lead[i] = std::max(table_.lead[i], table_.lead[i + 1]);
    if (ids_ != nullptr) find_legs();
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
        table_.ops[place(at)] = at;
    }
  }

  // Where a leg may begin or end.
  void find_legs() {
    const std::size_t ops = table_.ops.size();
    std::vector<Duration> first_after(ops + 1, Duration::max());  // begins of later ops
    for (std::size_t i = ops; i-- > 0;)
      first_after[i] = std::min(first_after[i + 1], table_.begin[i]);
    Duration begun = Duration::min(), ended{};                 // the last of earlier ops
    std::vector<Duration> free(kMaxStreams, Duration::min());  // by stream
    std::size_t from = ops;
    for (std::size_t i = 0; i < ops; ++i) {
      const CompiledOp& op = program_.ops[table_.ops[i]];
      const Duration begin = table_.begin[i];
      const bool by_itself = kind_.solos->entered_at(table_.ops[i]) == number_ && begun < begin &&
                             ended <= begin && first_after[i + 1] >= table_.end[i] &&
                             begin < table_.end[i];
      const bool same_stream = from == ops || program_.ops[table_.ops[from]].stream == op.stream;
      if (by_itself && same_stream && op.kind == OpKind::compute && free[op.stream] == begin) {
        if (from < ops) add_leg(from, i);
        from = i;
      }
      begun = std::max(begun, begin);
      ended = std::max(ended, table_.end[i]);
      free[op.stream] = table_.end[i];
    }
    if (from < ops && begun < table_.length &&
        free[program_.ops[table_.ops[from]].stream] == table_.length)
      add_leg(from, ops);
  }

  void add_leg(std::size_t from, std::size_t until) {
    SoloLeg& leg = table_.legs.emplace_back();
    leg.first = table_.ops[from];
    leg.next = until < table_.ops.size() ? table_.ops[until] : SoloLeg::kNone;
    leg.begin = table_.begin[from];
    leg.end = until < table_.ops.size() ? table_.begin[until] : table_.length;
    const auto told_at = [&](std::size_t op) {
      return op < table_.ops.size() ? table_.told_begin[op]
                                    : static_cast<std::uint32_t>(table_.told.size());
    };
    leg.effect = solo_effect(kind_, table_, told_at(from), told_at(until), leg.begin);
    for (const SoloEffect::Lane& lane : leg.effect.lanes)
      leg.last.push_back(program_.ops[lane.until - 1].index - program_.ops[leg.first].index);
    leg.id = ids_->of(told(from, until, leg.begin));
  }

  // All that tells the ops of a leg from those of others.
  std::vector<std::int64_t> told(std::size_t from, std::size_t until, Duration begin) const {
    const Program& program = *program_.program;
    std::vector<std::int64_t> told;
    for (std::size_t i = from; i < until; ++i) {
      const Op& op = program.blocks[solo_.block].ops[program_.ops[table_.ops[i]].index];
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
};

}  // namespace

SoloEffect solo_effect(const SoloKind& kind, const SoloTable& table, std::uint32_t first,
                       std::uint32_t behind, Duration begin) {
  const CompiledProgram& program = *kind.program;
  SoloEffect effect;
  effect.told = behind - first;
  effect.memory = MemoryCourse(program.program);
  std::uint32_t streams = 0;  // that are told of
  for (std::uint32_t i = first; i < behind; ++i) {
    const SoloTable::Told& told = table.told[i];
    const std::uint32_t at = table.ops[told.op];
    const CompiledOp& op = program.ops[at];
    streams |= 1U << told.stream;
    if (told.ends ? op.releases : op.takes) effect.memory.change(op, told.ends, told.at - begin);
    if (!told.ends) continue;
    const auto lane = std::find_if(effect.lanes.begin(), effect.lanes.end(),
                                   [&](const auto& known) { return known.stream == told.stream; });
    if (lane == effect.lanes.end())
      effect.lanes.push_back({told.stream, at + 1});
    else
      lane->until = at + 1;
    if (op.kind == OpKind::compute) continue;
    const auto known =
        std::find_if(effect.collectives.begin(), effect.collectives.end(),
                     [&](const auto& of) { return program.ops[of.op].column == op.column; });
    if (known == effect.collectives.end())
      effect.collectives.push_back({at, 1});
    else
      ++known->count;
  }
  const Duration most_at = begin + effect.memory.most_at();
  std::uint32_t behind_most = first;
  while (behind_most < behind && table.told[behind_most].at <= most_at)
    ++behind_most;
  const std::uint32_t run = behind_most > 0 ? table.told[behind_most - 1].runs : 0;
  for (; streams != 0; streams &= streams - 1) {
    const auto stream = static_cast<std::uint32_t>(std::countr_zero(streams));
    std::uint32_t ended = 0;
    for (std::uint32_t i = first; i < behind_most; ++i)
      ended += table.told[i].stream == stream && table.told[i].ends ? 1U : 0U;
    effect.memory.stream_at_most(stream, ended, (run >> stream & 1) != 0);
  }
  return effect;
}

SoloTable solo_table(const SoloKind& kind, std::uint32_t solo, LegIds* ids) {
  return TableMaker(kind, solo, ids).make();
}

}  // namespace trainyard::engine
