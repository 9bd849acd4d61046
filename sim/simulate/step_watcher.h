// Follows a step while it runs: when the round that is reported begins and ends, and where the time
// of every class goes. Keeps no span of what it has accounted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/simulate/report/breakdown.h"
#include "sim/simulate/step_window.h"

namespace trainyard::simulate {

class StepWatcher final : public engine::Observer {
 public:
  // Both are kept by reference. Without breakdowns only the window is found.
  StepWatcher(const plan::StepPlan& plan, const lower::Lowered& lowered, bool breakdowns);

  void kernel_ended(const engine::KernelSpan& kernel) override;
  void op_ended(const engine::Span& op) override;

  // All ops have ended, the last one at `end`.
  StepWindow finish(Duration end);
  // By class; of those that are not on GPUs all zero. Requires: finished.
  const std::vector<Breakdown>& breakdowns() const { return breakdowns_; }

 private:
  // Of an actor that stands for a class.
  struct Watched {
    const plan::Role* role = nullptr;
    std::optional<Accountant> accountant{};
  };

  std::size_t ops_until(const plan::Role& role, std::size_t round) const;

  const plan::StepPlan& plan_;
  std::map<const plan::Role*, StreamIndex> indices_;
  std::vector<std::uint32_t> watched_of_;  // by actor
  std::vector<Watched> watched_;           // by class
  StepWindow window_;
  std::size_t before_ = 0, inside_ = 0;  // ops that the window's begin and end still wait for
  std::vector<Breakdown> breakdowns_;
};

}  // namespace trainyard::simulate
