// Finds how old the parameters are on which gradients were computed while a step runs.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/simulate/report/server_updates.h"
#include "sim/simulate/watch/step_window.h"

namespace trainyard::simulate {

// Follows the players that update with gradients of one rank each (Role::updates_shard).
class UpdateWatch {
 public:
  // Both are kept by reference.
  UpdateWatch(const plan::StepPlan& plan, const lower::Lowered& lowered);

  bool watches() const { return !handlers_.empty(); }
  void op_ended(const engine::Span& op);
  // All has ended; updates that ended in the window.
  UpdateReport finish(const StepWindow& window, int ranks) const;

 private:
  struct Handler {
    const plan::Role* role = nullptr;
    std::uint32_t actor = 0;
    std::vector<std::uint32_t> piece;  // by op of its block: how many answers stand before it
  };
  struct Event {
    Duration at{};
    bool sends = false;  // parameters, and has not updated them
    std::uint32_t piece = 0, actor = 0;
    int shard = 0;
    auto operator<=>(const Event&) const = default;
  };

  std::map<std::uint32_t, Handler> handlers_;  // by actor
  std::vector<Event> events_;
};

}  // namespace trainyard::simulate
