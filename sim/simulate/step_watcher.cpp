#include "sim/simulate/step_watcher.h"

#include <limits>

namespace trainyard::simulate {
namespace {

constexpr std::uint32_t kUnwatched = std::numeric_limits<std::uint32_t>::max();

}  // namespace

StepWatcher::StepWatcher(const plan::StepPlan& plan, const lower::Lowered& lowered, bool breakdowns)
    : plan_(plan), watched_of_(lowered.machine.actors.size(), kUnwatched) {
  const bool has_rounds = plan.rounds.count > 1;
  if (has_rounds) window_.begin = Duration::max();
  watched_.reserve(lowered.classes.size());
  for (const lower::RankClass& rank_class : lowered.classes) {
    const plan::Role& role = plan.cast.roles[static_cast<std::size_t>(rank_class.stage)];
    watched_of_[index(rank_class.actor)] = static_cast<std::uint32_t>(watched_.size());
    Watched& watched = watched_.emplace_back();
    watched.role = &role;
    if (breakdowns && role.on_gpu())
      watched.accountant.emplace(indices_.try_emplace(&role, role.program).first->second, window_);
    if (!has_rounds) continue;
    const auto measured = static_cast<std::size_t>(plan.rounds.measured);
    before_ += ops_until(role, measured - 1);
    inside_ += ops_until(role, measured);
  }
}

std::size_t StepWatcher::ops_until(const plan::Role& role, std::size_t round) const {
  std::size_t ops = 0;
  for (std::size_t c = 0; c < role.round_calls[round]; ++c)
    ops += role.program.blocks[role.program.calls[c].block].ops.size();
  return ops;
}

void StepWatcher::kernel_ended(const engine::KernelSpan& kernel) {
  Watched& watched = watched_[watched_of_[index(kernel.actor)]];
  if (watched.accountant) watched.accountant->kernel_ended(kernel);
}

void StepWatcher::op_ended(const engine::Span& op) {
  Watched& watched = watched_[watched_of_[index(op.actor)]];
  if (watched.accountant) watched.accountant->op_ended(op);
  if (plan_.rounds.count == 1) return;
  const auto measured = static_cast<std::size_t>(plan_.rounds.measured);
  const std::vector<std::size_t>& calls = watched.role->round_calls;
  if (op.call < calls[measured - 1] && --before_ == 0) window_.begin = op.end;
  if (op.call < calls[measured] && --inside_ == 0) window_.end = op.end;
}

StepWindow StepWatcher::finish(Duration end) {
  if (plan_.rounds.count == 1) window_.end = end;
  for (Watched& watched : watched_) {
    Breakdown& breakdown = breakdowns_.emplace_back();
    if (watched.accountant) breakdown = watched.accountant->finish(end);
  }
  return window_;
}

}  // namespace trainyard::simulate
