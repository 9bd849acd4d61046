// The stages between a scenario and its report, with every intermediate value: what explain prints
// and tests look into.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/families/network.h"
#include "sim/cost/profile.h"
#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/rank_map.h"
#include "sim/recipe/recipe.h"
#include "sim/simulate/device_memory.h"
#include "topologies/cluster.h"

namespace trainyard {

// A job as plain values: what a scenario says, without its file.
struct Job {
  Network network;
  ClusterSpec cluster;
  TrainingRecipe recipe;
  ParallelPlan plan;
  std::optional<Profile> profile;  // none: datasheet and closed forms
  std::vector<Straggler> stragglers;
  Fidelity fidelity = Fidelity::closed_form;
  std::vector<std::string> warnings;  // what the report must say of these values
};

struct Step {
  NetworkWork work;
  StepPlan plan;
  Lowered lowered;
  std::vector<DeviceMemory> devices;  // by Lowered::classes
  Outcome outcome;                    // capacities and peaks in it are of what programs hold

  const Trace& trace() const;  // also of an outcome that is not feasible
};

struct StepOptions {
  bool unfold = false;
  bool run = true;                     // false: stop before the engine
  std::vector<bool> recorded_classes;  // empty: all
  bool outline = false;                // true: record no more than outline() needs
};

// Requires: a job that sim/scenario accepts. The result is movable: nothing in it points into
// `job`.
std::unique_ptr<Step> simulate_step(const Job& job, const StepOptions& options = {});

MachinePeaks peaks(const GpuSpec& gpu);

}  // namespace trainyard
