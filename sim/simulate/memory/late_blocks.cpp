#include "sim/simulate/memory/late_blocks.h"

#include <algorithm>
#include <deque>

namespace trainyard::simulate {

using engine::Op;
using plan::CallKind;

namespace {

struct Block {
  std::int64_t launch = 0;  // of its collective, from the begin of the step
  Duration end{};
  std::int64_t bytes = 0;
};

bool is_forward(const plan::CallInfo& call, const Op& op) {
  if (call.kind == CallKind::pair)
    return static_cast<plan::PairPart>(op.part) == plan::PairPart::forward;
  return call.kind == CallKind::forward;
}

// Of a collective inside a layer, of which the script frees one end soon after; else 0.
std::int64_t freed_bytes(const plan::Cast& cast, const plan::CallInfo& call, const Op& op,
                         bool keeps_gathered_inputs) {
  if (op.kind != engine::OpKind::collective ||
      static_cast<plan::StreamKind>(op.stream) != plan::StreamKind::tensor)
    return 0;
  const plan::TransferSpec& transfer = cast.transfer(op);
  switch (transfer.kind) {
    case CollectiveKind::all_gather:
      return keeps_gathered_inputs && is_forward(call, op) ? 0 : transfer.bytes.count();
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_reduce: return transfer.bytes.count();
    default: return 0;
  }
}

// What the script holds from op to op, and what comes back to it late.
class Script {
 public:
  Script(const engine::Program& program, Duration launch, std::int64_t ahead)
      : program_(program), launch_(launch), ahead_(ahead) {}

  // `freed`: bytes of a collective that ends at `time`, else 0; a drained op begins then.
  void take(const Op& op, std::int64_t freed, Duration time) {
    if (op.drained) wait_until(time);
    launches_ += op.launches;
    host_ += op.call + std::int64_t{op.launches} * launch_;
    change(op, true);
    if (freed > 0) {
      late_.push_back({launches_, time, freed});
      late_bytes_ += freed;
    }
    while (!late_.empty() && is_back(late_.front())) {
      host_ = std::max(host_, late_.front().end);
      late_bytes_ -= late_.front().bytes;
      late_.pop_front();
    }
    most_ = std::max(most_, level_);
    most_with_late_ = std::max(most_with_late_, level_ + late_bytes_);
    change(op, false);
  }
  // The host goes on when the GPU has come so far.
  void wait_until(Duration time) {
    host_ = std::max(host_, time);
    late_.clear();
    late_bytes_ = 0;
  }
  Bytes late_at_most() const { return Bytes(most_with_late_ - most_); }

 private:
  bool is_back(const Block& block) const {
    return launches_ - block.launch >= ahead_ || block.end <= host_;
  }
  void change(const Op& op, bool takes) {
    for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e)
      if ((program_.effects[e].bytes > 0) == takes) level_ += program_.effects[e].bytes;
  }

  const engine::Program& program_;
  Duration launch_;
  std::int64_t ahead_, launches_ = 0;
  Duration host_{};                                         // when the last launch was made
  std::int64_t level_ = 0, most_ = 0, most_with_late_ = 0;  // beside what is resident
  std::deque<Block> late_;
  std::int64_t late_bytes_ = 0;
};

}  // namespace

LateBlocks::LateBlocks(const plan::Cast& cast, const lower::Lowered& lowered,
                       bool keeps_gathered_inputs)
    : cast_(cast),
      lowered_(lowered),
      keeps_gathered_inputs_(keeps_gathered_inputs),
      watched_of_(lowered.machine.actors.size(), 0) {
  for (const lower::RankClass& own : lowered.classes) {
    Watched watched;
    watched.role = &cast.roles[static_cast<std::size_t>(own.role)];
    watched.noted = &noted_of(*watched.role);
    watched.times.assign(watched.noted->first.back(), Duration(0));
    watched.rounds.assign(watched.role->round_calls.size(), Duration(0));
    watched.actor = static_cast<std::uint32_t>(own.actor);
    watched_.push_back(std::move(watched));
    watched_of_[index(own.actor)] = watched_.size();
  }
}

const LateBlocks::Noted& LateBlocks::noted_of(const plan::Role& role) {
  const auto [known, is_new] = noted_.try_emplace(&role);
  Noted& noted = known->second;
  if (!is_new) return noted;
  const engine::Program& program = role.program;
  noted.freed.resize(program.blocks.size());
  noted.before.resize(program.blocks.size());
  std::size_t all = 0;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const std::uint32_t block = program.calls[i].block;
    std::vector<std::uint32_t>& before = noted.before[block];
    if (before.empty()) {
      before.push_back(0);
      for (const Op& op : program.blocks[block].ops) {
        const std::int64_t bytes = freed_bytes(cast_, role.calls[i], op, keeps_gathered_inputs_);
        noted.freed[block].push_back(bytes);
        before.push_back(before.back() + (bytes > 0 || op.drained ? 1 : 0));
      }
    }
    noted.first.push_back(all);
    all += before.back();
  }
  noted.first.push_back(all);
  return noted;
}

void LateBlocks::op_ended(const engine::Span& op) {
  const std::size_t place = watched_of_[index(op.actor)];
  if (place == 0) return;
  Watched& watched = watched_[place - 1];
  watched.call = op.call;
  if (Duration* end = watched.end_of_round()) *end = std::max(*end, op.end);
  const std::uint32_t block = watched.role->program.calls[op.call].block;
  const std::vector<std::uint32_t>& before = watched.noted->before[block];
  if (before[op.op] == before[op.op + 1]) return;
  const Told told{op.call, before[op.op],
                  watched.noted->freed[block][op.op] > 0 ? op.end : op.begin};
  watched.times[watched.noted->first[told.call] + told.place] = told.time;
  watched.recent.push_back(told);
  ++watched.told;
}

Duration* LateBlocks::Watched::end_of_round() {
  const std::vector<std::size_t>& ends = role->round_calls;
  const auto round = std::upper_bound(ends.begin(), ends.end(), call) - ends.begin();
  return round < std::ssize(ends) ? &rounds[static_cast<std::size_t>(round)] : nullptr;
}

void LateBlocks::Watched::repeat(std::int64_t ops, std::int64_t times_again, std::uint32_t calls,
                                 Duration after) {
  for (auto op = recent.end() - ops; op != recent.end(); ++op)
    for (std::int64_t again = 1; again <= times_again; ++again)
      times[noted->first[op->call + static_cast<std::size_t>(again) * calls] + op->place] =
          op->time + again * after;
  recent.clear();
}

// What it is told in a period it would be told in each that is skipped, so many calls and so long
// later. It is told late of some, but as late each time.
bool LateBlocks::walk(engine::StateWalk& walk) {
  for (Watched& watched : watched_) {
    if (watched.role->round_calls.size() > 1) walk.marks(watched.actor, watched.role->round_calls);
    const std::int64_t told = watched.told;
    const std::uint32_t call = watched.call;
    Duration* const end = watched.end_of_round();
    walk.sum(watched.told);
    walk.call(watched.actor, watched.call);
    if (walk.reads() || watched.call == call) continue;
    const std::int64_t times = walk.times();
    if (end != nullptr) *end += walk.shift();
    watched.repeat((watched.told - told) / times, times,
                   static_cast<std::uint32_t>((watched.call - call) / times), walk.shift() / times);
  }
  return true;
}

Bytes LateBlocks::of(std::size_t rank_class, std::int64_t ahead) const {
  const Watched& watched = watched_[rank_class];
  const engine::Program& program = watched.role->program;
  Script script(program, lowered_.machine.actors[lowered_.classes[rank_class].actor].launch, ahead);
  const std::vector<std::size_t>& rounds = watched.role->round_calls;
  auto round = rounds.begin();
  std::size_t next = 0;
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    for (; round != rounds.end() && *round <= call; ++round)
      script.wait_until(watched.rounds[static_cast<std::size_t>(round - rounds.begin())]);
    const std::uint32_t block = program.calls[call].block;
    const std::vector<Op>& ops = program.blocks[block].ops;
    const std::vector<std::uint32_t>& before = watched.noted->before[block];
    for (std::size_t o = 0; o < ops.size(); ++o) {
      const bool is_noted = before[o] < before[o + 1];
      script.take(ops[o], watched.noted->freed[block][o],
                  is_noted ? watched.times[next++] : Duration(0));
    }
  }
  return script.late_at_most();
}

}  // namespace trainyard::simulate
