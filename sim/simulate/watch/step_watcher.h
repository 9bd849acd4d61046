// Follows a step while it runs: when the round that is reported begins and ends, and where the time
// of every class goes. Keeps no span of what it has accounted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/simulate/monitor/kernel_loads.h"
#include "sim/simulate/report/breakdown.h"
#include "sim/simulate/step.h"
#include "sim/simulate/watch/step_window.h"
#include "sim/simulate/watch/update_watch.h"

namespace trainyard::simulate {

// What is followed of a step beside its window; each needs the one before.
struct Followed {
  bool breakdowns = false, loads = false, waiting = false;
  std::optional<std::size_t> only{};  // of one class, into Lowered::classes; nothing: of all
};

class StepWatcher final : public engine::Observer {
 public:
  // Both are kept by reference.
  StepWatcher(const plan::StepPlan& plan, const lower::Lowered& lowered, const Followed& followed);

  void kernel_ended(const engine::KernelSpan& kernel) override;
  void op_ended(const engine::Span& op) override;
  bool walk(engine::StateWalk& walk) override;
  bool may_be_told_late() const override;
  bool leg_begins(const engine::Leg& leg) override;
  void leg_ended(const engine::Leg& leg) override;

  // All ops have ended, the last one at `end`.
  StepWindow finish(Duration end);
  // By class; of those that are not on GPUs all zero. Requires: finished.
  const std::vector<Breakdown>& breakdowns() const { return breakdowns_; }
  std::vector<LoadTimes> loads() const;
  std::vector<std::vector<WaitingTime>> take_waiting();
  // Empty: all ranks wait for each other.
  std::optional<UpdateReport> server_updates() const;

 private:
  // Keeps what it is told, neighbours of a kind as one.
  class Waiting final : public GapObserver {
   public:
    void waited(TimeCategory category, Duration begin, Duration end) override;
    std::vector<WaitingTime> times;
  };

  // Of an actor that stands for a class.
  struct Watched {
    const plan::Role* role = nullptr;
    int ranks = 0;                    // of the class; 0: not on GPUs
    std::vector<std::size_t> left{};  // by round, where ranks end them apart: ops that go on
    std::optional<Accountant> accountant{};
    int gpu_kind = 0;
    const KernelLoads* kernels = nullptr;  // null: nobody asks what they draw
    LoadTimes loads{};
    LoadTimes loads_before{};  // at the begin of a leg
    bool held = false;         // kernels of the next op of the compute stream have been told
    std::unique_ptr<Waiting> waiting{};
  };

  // What a leg adds on a kind of GPUs.
  struct KnownLeg {
    bool told = false;
    int gpu_kind = 0;
    bool has_loads = false;
    Breakdown parts{};
    LoadTimes loads{};
  };

  std::size_t last_round() const;
  std::size_t ops_until(const plan::Role& role, std::size_t round) const;
  void end_round(const engine::Span& op, Watched& watched);
  Stretch inside(Duration begin, Duration end) const;
  void add_kernels(const engine::Span& op, Watched& watched);

  const plan::StepPlan& plan_;
  std::map<const plan::Role*, StreamIndex> indices_;
  std::map<std::pair<const plan::Role*, int>, KernelLoads> kernels_;  // on a kind of GPUs
  std::vector<std::uint32_t> watched_of_;                             // by actor
  std::vector<Watched> watched_;                                      // by class
  StepWindow window_;
  std::size_t before_ = 0, inside_ = 0;  // ops that the window's begin and end still wait for
  struct RoundEnd {
    Duration at{};
    int ranks = 0;
  };
  std::vector<RoundEnd> round_ends_;  // where ranks end them apart
  int ranks_ = 0;                     // on GPUs
  int started_ = 0;                   // of these, those that have ended a round
  bool is_warm_ = false;              // the first has ended those before what is measured
  UpdateWatch updates_;
  std::vector<KnownLeg> legs_;  // by Leg::id
  bool learns_ = false;         // the leg that is told
  std::vector<Breakdown> breakdowns_;
};

}  // namespace trainyard::simulate
