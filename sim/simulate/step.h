// The stages between a scenario and its report, with every intermediate value: what explain prints
// and tests look into.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/families/network.h"
#include "models/families/network_works.h"
#include "sim/cost/profile.h"
#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/recipe.h"
#include "sim/simulate/device_memory.h"
#include "sim/simulate/gpu_price.h"
#include "sim/simulate/monitor/loads.h"
#include "sim/simulate/report/server_updates.h"
#include "sim/simulate/report/shares/job_share.h"
#include "sim/simulate/report/shown_ranks.h"
#include "sim/simulate/report/step_report.h"
#include "sim/simulate/watch/step_window.h"
#include "topologies/cluster.h"

namespace trainyard::simulate {

// A job as plain values: what a scenario says, without its file.
struct Job {
  models::Network network;
  topologies::ClusterSpec cluster;
  recipe::TrainingRecipe recipe;
  recipe::ParallelPlan plan;
  std::vector<GpuPrice> prices = std::vector<GpuPrice>(1);  // by topologies::gpu_kinds
  std::vector<recipe::Straggler> stragglers;
  double compute_jitter = 0;  // as in Scenario
  collective::Choices collectives;
  recipe::Fidelity fidelity = recipe::Fidelity::closed_form;
  recipe::TrainingLength length;
  std::vector<struct OtherJob> others;  // on other GPUs of the cluster, with flows
  std::vector<int> gpus_taken;          // by server, those before its own; empty: none
  std::vector<std::string> warnings;    // what the report must say of these values
  // Of jobs of one network on one machine, which share them; null: there is one.
  std::shared_ptr<models::NetworkWorks> works{};

  // Of a kind of GPUs; null: none.
  const cost::Profile* profile_of(int gpu_kind) const;
};

struct OtherJob {
  std::string name;
  Job job;  // of the same cluster but for ClusterSpec::gpus_used
};

// The GPU of the ranks of a class.
const topologies::GpuSpec& gpu_of(const Job& job, const lower::RankClass& rank_class);

// Time of the compute stream that no kernel fills.
struct WaitingTime {
  Duration begin{}, end{};
  TimeCategory category = TimeCategory::bubble;
};

struct Step {
  std::shared_ptr<const models::NetworkWork> work;
  plan::StepPlan plan;
  lower::DevicePlacement placement;
  lower::Lowered lowered;
  std::vector<DeviceMemory> devices;     // by Lowered::classes
  std::unique_ptr<plan::Cast> together;  // of all jobs, where there are others
  std::vector<JobShare> jobs;            // the same, this one first
  engine::Outcome outcome;               // capacities and peaks in it are of what programs hold
  StepWindow window;                     // of an outcome that is no deadlock
  // The same, by class, each sums to a step of the window; empty: outline. Of standing only that of
  // slowest_class().
  std::vector<Breakdown> breakdowns;
  std::optional<UpdateReport> server_updates;  // where ranks go at their own pace
  std::vector<LoadTimes> loads;  // of kernels, by class; empty: nobody needs the energy of the step
  std::vector<std::vector<WaitingTime>> waiting;  // by class, in order; empty: no monitor

  const engine::Trace& trace() const;  // also of an outcome that is not feasible
};

// What is kept of a run: what outline() needs, also what standing() needs, also what summarize()
// needs, also what timeline() needs. Only the last always grows with the micro-batches of the step.
enum class Detail : std::uint8_t { outline, standing, summary, timeline };

// The class on GPUs of which the last op ends last, the first of those that are equal, into
// Lowered::classes. Requires: an outcome that is no deadlock.
std::size_t slowest_class(const Step& step);

// 1 + compute_jitter times the expected largest of as many standard normal numbers as GPUs of the
// job wait for each other: all, but of replicas at their own pace those of one. Source:
// docs/results.md, "GPUs that are not equally fast".
SlowestGpu slowest_gpu(const Job& job);

// On which the job has ranks.
int servers_used(const Job& job);

struct StepOptions {
  bool unfold = false;
  bool run = true;  // false: stop before the engine
  Detail detail = Detail::timeline;
  TimelineLimits shown{};  // with Detail::timeline; with a monitor all are kept
  bool monitor = false;    // also keep what monitor() needs. Requires: Detail::timeline
  // engine::RunOptions::skip_periods. Without effect where other jobs run beside, ranks go at their
  // own pace or Detail::timeline is asked for.
  bool skip_periods = true;
  bool solos = true;  // engine::RunOptions::solos
  plan::StageBlocks blocks = plan::StageBlocks::shared;
};

// Requires: a job that sim/scenario accepts. Throws lower::UnsupportedCollective. The result is
// movable: nothing in it points into `job`.
std::unique_ptr<Step> simulate_step(const Job& job, const StepOptions& options = {});

cost::MachinePeaks peaks(const topologies::GpuSpec& gpu);

}  // namespace trainyard::simulate
