// Lowers a step plan onto a cluster: kernels become durations, collectives and messages become
// transfers with latency, bytes and routes, ranks become actors (one per class, or all).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/cost/host_copies.h"
#include "sim/engine/machine.h"
#include "sim/lower/flow_layout.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/rank_map.h"
#include "sim/recipe/recipe.h"
#include "topologies/topology.h"

namespace trainyard::lower {

struct LowerOptions {
  recipe::Fidelity fidelity = recipe::Fidelity::closed_form;
  bool fold = true;
  std::vector<recipe::Straggler> stragglers;
  std::vector<double> expert_load;  // ParallelPlan::expert_load
  std::vector<double> rank_load;    // NetworkWork::rank_load
  Duration launch{};                // host time per kernel launch
  // How much kernels mind multiprocessors that communication holds; 1: in proportion.
  double gemm_weight = 1, memory_bound_weight = 1;
  std::vector<cost::HostCopyLaw> host_copies;  // of the profile
  collective::Choices algorithms;
};

// Ranks that behave alike.
struct RankClass {
  int representative = 0;  // the lowest rank
  int ranks = 0;           // how many there are
  int stage = 0;
  double slowdown = 1;
  double expert_load = 1;   // work of its experts or tables, in units of the even share
  engine::ActorId actor{};  // that simulates the representative
};

// A message or collective as it was estimated, for the report.
struct TransferEstimate {
  bool point_to_point = false;
  std::optional<cost::HostTransfer> host;  // of one rank alone
  plan::CollectiveSpec spec;               // kind is meaningless for a message and for those
  cost::GroupShape shape;
  cost::MessageTerms terms;
};

struct Lowered {
  engine::Machine machine;
  std::vector<std::unique_ptr<engine::KernelTimes>> times;  // owned here, pointed to by the actors
  std::vector<RankClass> classes;                           // also when every rank is an actor
  std::vector<std::uint32_t> class_of_rank;
  std::vector<cost::Estimate> kernels;                   // by StepPlan::kernels, without slow-down
  std::vector<std::vector<TransferEstimate>> transfers;  // like Machine::transfers
};

// `topology` is used with Fidelity::flow only and may be null otherwise. The plan must outlive the
// result. Requires: ranks.world_size() GPUs in the cluster. Throws UnsupportedCollective if an
// algorithm cannot carry out a collective of the plan.
Lowered lower(const plan::StepPlan& plan, const recipe::RankGrids& ranks,
              const topologies::ClusterSpec& cluster, const topologies::Topology* topology,
              const cost::ComputeCost& compute, const cost::MessageCost& messages,
              const LowerOptions& options);

}  // namespace trainyard::lower
