#include "sim/simulate/watch/update_watch.h"

#include <algorithm>
#include <utility>

namespace trainyard::simulate {

using engine::OpKind;

UpdateWatch::UpdateWatch(const plan::StepPlan& plan, const lower::Lowered& lowered) {
  for (const lower::RankClass& rank_class : lowered.classes) {
    const plan::Role& role = plan.cast.roles[static_cast<std::size_t>(rank_class.role)];
    if (!role.updates_shard) continue;
    Handler handler{
        .role = &role, .actor = static_cast<std::uint32_t>(rank_class.actor), .piece = {}};
    std::uint32_t answers = 0;
    for (const engine::Op& op : role.program.blocks.front().ops) {
      handler.piece.push_back(answers);
      if (op.kind == OpKind::send) ++answers;
    }
    handlers_.emplace(handler.actor, std::move(handler));
  }
}

// The first parameters are those before any update.
void UpdateWatch::op_ended(const engine::Span& span) {
  const auto found = handlers_.find(static_cast<std::uint32_t>(span.actor));
  if (found == handlers_.end()) return;
  const Handler& handler = found->second;
  const engine::Op& op = handler.role->program.op(span.call, span.op);
  const bool updates = op.group == static_cast<std::uint8_t>(plan::OpGroup::host_optimizer);
  if (op.kind != OpKind::send && !updates) return;
  events_.push_back({.at = updates ? span.end : span.begin,
                     .sends = !updates,
                     .piece = handler.piece[span.op],
                     .actor = handler.actor,
                     .shard = *handler.role->updates_shard});
}

UpdateReport UpdateWatch::finish(const StepWindow& window, int ranks) const {
  std::vector<Event> events = events_;
  std::sort(events.begin(), events.end());
  std::map<std::pair<int, std::uint32_t>, std::int64_t> version;         // by shard and piece
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> sent;  // by actor and piece
  UpdateReport updates;
  for (const Event& event : events) {
    std::int64_t& now = version[{event.shard, event.piece}];
    std::int64_t& seen = sent[{event.actor, event.piece}];
    if (event.sends) {
      seen = now;
      continue;
    }
    const auto age = static_cast<std::size_t>(now - seen);
    ++now;
    if (event.at <= window.begin || event.at > window.end) continue;
    if (updates.staleness.size() <= age) updates.staleness.resize(age + 1, 0);
    ++updates.staleness[age];
  }
  const double seconds = Seconds(window.end - window.begin).count();
  if (seconds > 0) updates.per_s = window.steps * ranks / seconds;
  return updates;
}

}  // namespace trainyard::simulate
