// What simulate_step does before the engine runs: a job's costs, its plan, and its cast on the
// cluster.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/simulate/step.h"
#include "topologies/topology.h"

namespace trainyard::simulate {

// What each kind of GPUs takes for kernels and, as far as its laws are asked, for messages.
struct Costs {
  std::vector<std::unique_ptr<cost::ComputeCost>> compute;
  std::vector<lower::GpuLaws> laws;
  std::unique_ptr<cost::MessageCost> messages;
  double communication_share = 1;        // the least of all
  std::vector<int> collective_channels;  // of the profiles
};
Costs costs_of(const Job& job);

// The GPUs of a job's own players.
lower::DevicePlacement placement_of(const Job& job, const plan::Cast& cast);

class StepMaker {
 public:
  // The job must outlive this.
  StepMaker(const Job& job, const StepOptions& options);

  const Costs& costs() const { return costs_; }

  // The job's work and plan.
  void plan(Step& step) const;
  // Puts the plan on the job's GPUs.
  void place(Step& step) const;
  // Puts a cast that begins with the plan's own on the cluster. What others bring along is in
  // Lowered::machine alone; returned are the classes of their players, by number of the player.
  // `slower`: players of others that differ from the job's own in the jitter of their servers.
  std::vector<lower::RankClass> place_with_others(const plan::Cast& cast,
                                                  const lower::DevicePlacement& placement,
                                                  std::vector<recipe::Straggler> slower,
                                                  Step& step) const;

 private:
  lower::Lowered lowered(const plan::Cast& cast, const lower::DevicePlacement& placement,
                         std::vector<recipe::Straggler> slow) const;
  void limit_memory(Step& step) const;

  const Job& job_;
  bool unfold_;
  plan::StageBlocks blocks_;
  Costs costs_;
  std::optional<topologies::Topology> topology_;
};

// Runs the programs of a step that has been placed; `beside`: what else is told of the classes of
// other jobs.
struct Beside {
  engine::Observer* observer = nullptr;
  std::vector<engine::ActorId> actors{};
};
void run_programs(const Job& job, const StepOptions& options, const Beside& beside, Step& step);

}  // namespace trainyard::simulate
