#include "sim/simulate/watch/step_watcher.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trainyard::simulate {
namespace {

constexpr std::uint32_t kUnwatched = std::numeric_limits<std::uint32_t>::max();

// Per step, what was counted over several of them; what the parts sum to is rounded once.
template <std::size_t Size>
void divide(std::array<Duration, Size>& parts, double steps) {
  if (steps == 1) return;
  Duration sum{}, given{};
  for (Duration& part : parts) {
    sum += part;
    part = to_duration(Seconds(sum) / steps) - given;
    given += part;
  }
}

}  // namespace

StepWatcher::StepWatcher(const plan::StepPlan& plan, const lower::Lowered& lowered,
                         const Followed& followed)
    : plan_(plan), watched_of_(lowered.machine.actors.size(), kUnwatched), updates_(plan, lowered) {
  const bool has_rounds = plan.rounds.count > 1;
  if (has_rounds) window_.begin = Duration::max();
  watched_.reserve(lowered.classes.size());
  for (const lower::RankClass& rank_class : lowered.classes) {
    const plan::Role& role = plan.cast.roles[static_cast<std::size_t>(rank_class.role)];
    watched_of_[index(rank_class.actor)] = static_cast<std::uint32_t>(watched_.size());
    Watched& watched = watched_.emplace_back();
    watched.role = &role;
    watched.ranks = role.on_gpu() ? rank_class.ranks : 0;
    ranks_ += watched.ranks;
    if (followed.breakdowns && role.on_gpu() &&
        followed.only.value_or(watched_.size() - 1) == watched_.size() - 1) {
      if (followed.waiting) watched.waiting = std::make_unique<Waiting>();
      watched.accountant.emplace(indices_.try_emplace(&role, role.program).first->second, window_,
                                 watched.waiting.get());
      watched.gpu_kind = rank_class.gpu_kind;
      if (followed.loads) {
        const std::pair key(&role, rank_class.gpu_kind);
        watched.kernels =
            &kernels_.try_emplace(key, role, plan.cast, lowered, rank_class.gpu_kind).first->second;
      }
    }
    if (!has_rounds || !role.on_gpu()) continue;
    if (plan.rounds.apart) {
      std::size_t before = 0;
      for (int round = 0; round < plan.rounds.count; ++round) {
        const std::size_t until = ops_until(role, static_cast<std::size_t>(round));
        watched.left.push_back(until - std::exchange(before, until));
      }
      continue;
    }
    const auto measured = static_cast<std::size_t>(plan.rounds.measured);
    before_ += ops_until(role, measured - 1);
    inside_ += ops_until(role, last_round());
  }
}

// Of those that are measured.
std::size_t StepWatcher::last_round() const {
  const plan::Rounds& rounds = plan_.rounds;
  return static_cast<std::size_t>(rounds.whole ? rounds.count - 1 - rounds.after : rounds.measured);
}

std::size_t StepWatcher::ops_until(const plan::Role& role, std::size_t round) const {
  std::size_t ops = 0;
  for (std::size_t c = 0; c < role.round_calls[round]; ++c)
    ops += role.program.blocks[role.program.calls[c].block].ops.size();
  return ops;
}

void StepWatcher::kernel_ended(const engine::KernelSpan& kernel) {
  if (watched_of_[index(kernel.actor)] == kUnwatched) return;
  Watched& watched = watched_[watched_of_[index(kernel.actor)]];
  if (watched.accountant) watched.accountant->kernel_ended(kernel);
  if (watched.kernels == nullptr) return;
  const engine::Program& program = watched.role->program;
  const engine::Op& op = program.op(kernel.call, kernel.op);
  if (op.stream != static_cast<std::uint8_t>(plan::StreamKind::compute)) return;
  watched.held = true;
  watched.loads[static_cast<std::size_t>(watched.kernels->load(kernel.kernel))] +=
      window_.part(kernel.begin, kernel.end);
}

// The part of a time that the window holds so far.
Stretch StepWatcher::inside(Duration begin, Duration end) const {
  begin = std::max(begin, window_.begin);
  return {begin, std::max(begin, std::min(end, window_.end))};
}

// Of an op whose kernels follow each other without a gap, nothing was told of them.
void StepWatcher::add_kernels(const engine::Span& span, Watched& watched) {
  const engine::Program& program = watched.role->program;
  const engine::Op& op = program.op(span.call, span.op);
  if (op.stream != static_cast<std::uint8_t>(plan::StreamKind::compute)) return;
  const bool told = watched.held;
  watched.held = false;
  if (told || program.segments[op.subject].kernels == 0) return;
  const Stretch part = inside(span.begin, span.end);
  if (part.begin < span.end)
    watched.kernels->add_segment(op.subject, {span.begin, span.end}, part, watched.loads);
}

void StepWatcher::Waiting::waited(TimeCategory category, Duration begin, Duration end) {
  const bool goes_on =
      !times.empty() && times.back().category == category && times.back().end == begin;
  if (goes_on)
    times.back().end = end;
  else
    times.push_back({begin, end, category});
}

void StepWatcher::op_ended(const engine::Span& op) {
  if (watched_of_[index(op.actor)] == kUnwatched) return;
  Watched& watched = watched_[watched_of_[index(op.actor)]];
  if (watched.accountant) watched.accountant->op_ended(op);
  if (watched.kernels != nullptr) add_kernels(op, watched);
  if (plan_.rounds.count == 1) return;
  if (plan_.rounds.apart) return end_round(op, watched);
  if (watched.ranks == 0) return;
  const auto measured = static_cast<std::size_t>(plan_.rounds.measured);
  const std::vector<std::size_t>& calls = watched.role->round_calls;
  if (op.call < calls[measured - 1] && --before_ == 0) window_.begin = op.end;
  if (op.call < calls[last_round()] && --inside_ == 0) window_.end = op.end;
}

// The first rank that ends a round bounds the window, but for ranks that have not done any.
void StepWatcher::end_round(const engine::Span& op, Watched& watched) {
  updates_.op_ended(op);
  if (watched.ranks == 0) return;
  const std::vector<std::size_t>& calls = watched.role->round_calls;
  const auto round = static_cast<std::size_t>(
      std::upper_bound(calls.begin(), calls.end(), op.call) - calls.begin());
  if (round >= watched.left.size() || --watched.left[round] > 0) return;
  round_ends_.push_back({op.end, watched.ranks});
  const int ended = static_cast<int>(round) + 1;
  if (ended == 1) started_ += watched.ranks;
  is_warm_ = is_warm_ || ended == plan_.rounds.measured;
  const bool begins = is_warm_ && (plan_.rounds.of_first || started_ == ranks_);
  if (begins) window_.begin = std::min(window_.begin, op.end);
  if (begins && ended == plan_.rounds.count) window_.end = std::min(window_.end, op.end);
}

// The ends of rounds are those of all ranks in the order of time.
bool StepWatcher::may_be_told_late() const {
  return plan_.rounds.count == 1 && !updates_.watches();
}

bool StepWatcher::leg_begins(const engine::Leg& leg) {
  learns_ = false;
  if (watched_of_[index(leg.actor)] == kUnwatched) return true;
  Watched& watched = watched_[watched_of_[index(leg.actor)]];
  if (!watched.accountant) return true;
  if (watched.waiting || watched.held || !watched.accountant->stands_at(leg.begin)) return false;
  if (leg.id < legs_.size() && legs_[leg.id].told) {
    const KnownLeg& known = legs_[leg.id];
    const bool has_loads = watched.kernels != nullptr;
    if (known.gpu_kind != watched.gpu_kind || known.has_loads != has_loads) return false;
    watched.accountant->add(known.parts, leg);
    for (std::size_t l = 0; l < known.loads.size(); ++l)
      watched.loads[l] += known.loads[l];
    return true;
  }
  learns_ = true;
  watched.accountant->begin_leg();
  watched.loads_before = watched.loads;
  return false;
}

void StepWatcher::leg_ended(const engine::Leg& leg) {
  if (!std::exchange(learns_, false)) return;
  Watched& watched = watched_[watched_of_[index(leg.actor)]];
  if (watched.held || !watched.accountant->stands_at(leg.end)) return;
  const std::optional<Breakdown> parts = watched.accountant->end_leg();
  if (!parts) return;
  if (leg.id >= legs_.size()) legs_.resize(leg.id + 1);
  KnownLeg& known = legs_[leg.id];
  known = {.told = true,
           .gpu_kind = watched.gpu_kind,
           .has_loads = watched.kernels != nullptr,
           .parts = *parts};
  for (std::size_t l = 0; l < known.loads.size(); ++l)
    known.loads[l] = watched.loads[l] - watched.loads_before[l];
}

// Within one round, in which each op is counted as the others.
bool StepWatcher::walk(engine::StateWalk& walk) {
  if (plan_.rounds.apart || updates_.watches()) return false;
  walk.same(window_.begin.count());
  walk.same(window_.end.count());
  if (window_.begin < Duration::max())
    walk.counts_from(window_.end < Duration::max() ? window_.end : window_.begin);
  walk.sum(before_);
  walk.sum(inside_);
  for (std::uint32_t actor = 0; actor < watched_of_.size(); ++actor) {
    if (watched_of_[actor] == kUnwatched) continue;
    Watched& watched = watched_[watched_of_[actor]];
    if (watched.waiting) return false;
    if (plan_.rounds.count > 1) walk.marks(actor, watched.role->round_calls);
    if (watched.accountant) watched.accountant->walk(walk, actor);
    walk.same(watched.held ? 1 : 0);
    for (Duration& load : watched.loads)
      walk.sum(load);
  }
  return true;
}

std::optional<UpdateReport> StepWatcher::server_updates() const {
  if (!updates_.watches()) return std::nullopt;
  return updates_.finish(window_, ranks_);
}

StepWindow StepWatcher::finish(Duration end) {
  if (plan_.rounds.count == 1) window_.end = end;
  if (plan_.rounds.whole)
    window_.steps = plan_.rounds.count - plan_.rounds.measured - plan_.rounds.after;
  if (plan_.rounds.apart) {
    std::int64_t rounds = 0;
    for (const RoundEnd& round : round_ends_)
      if (round.at > window_.begin && round.at <= window_.end) rounds += round.ranks;
    if (!plan_.rounds.of_first) window_.steps = static_cast<double>(rounds) / ranks_;
  }
  for (Watched& watched : watched_) {
    Breakdown& breakdown = breakdowns_.emplace_back();
    if (watched.accountant) breakdown = watched.accountant->finish(end);
    divide(breakdown, window_.steps);
    divide(watched.loads, window_.steps);
  }
  return window_;
}

std::vector<LoadTimes> StepWatcher::loads() const {
  std::vector<LoadTimes> loads;
  for (const Watched& watched : watched_)
    loads.push_back(watched.loads);
  return loads;
}

std::vector<std::vector<WaitingTime>> StepWatcher::take_waiting() {
  std::vector<std::vector<WaitingTime>> all;
  for (Watched& watched : watched_)
    all.push_back(watched.waiting ? std::move(watched.waiting->times) : std::vector<WaitingTime>{});
  return all;
}

}  // namespace trainyard::simulate
