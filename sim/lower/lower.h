// Lowers a cast onto a cluster: kernels become durations, collectives and messages become transfers
// with latency, bytes and routes, players become actors (one per class, or all).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/machine.h"
#include "sim/lower/device_placement.h"
#include "sim/lower/gpu_laws.h"
#include "sim/lower/transfer_tables.h"
#include "sim/plan/cast.h"
#include "sim/recipe/recipe.h"
#include "topologies/topology.h"

namespace trainyard::lower {

struct LowerOptions {
  recipe::Fidelity fidelity = recipe::Fidelity::closed_form;
  bool fold = true;  // else every rank is an actor, and paths name links that cannot fill too
  std::vector<recipe::Straggler> stragglers;
  double slowdown = 1;             // of every GPU's kernels
  double communication_share = 1;  // of its rate, beside kernels
  collective::Choices algorithms;
};

// Players that behave alike.
struct RankClass {
  int representative = 0;  // the lowest player
  int ranks = 0;           // how many there are
  int role = 0;            // into Cast::roles
  int stage = 0;           // that its ranks hold; of others the role
  int gpu_kind = 0;        // topologies::gpu_kinds
  double slowdown = 1;
  double expert_load = 1;   // work of its experts or tables, in units of the even share
  engine::ActorId actor{};  // that simulates the representative
};

struct Lowered {
  engine::Machine machine;
  std::vector<std::unique_ptr<engine::KernelTimes>> times;  // owned here, pointed to by the actors
  std::vector<RankClass> classes;                           // also when every rank is an actor
  std::vector<std::uint32_t> class_of_rank;
  // By kind of GPU and Cast::kernels, without slow-down; empty for kinds that no player has.
  std::vector<std::vector<cost::Estimate>> kernels;
  std::vector<std::vector<TransferEstimate>> transfers;  // like Machine::transfers
};

// `gpus`: by topologies::gpu_kinds. `topology` is used with Fidelity::flow only and may be null
// otherwise. The cast must outlive the result. Requires: a device of the cluster for every player.
// Throws UnsupportedCollective if an algorithm cannot carry out a collective of the cast.
Lowered lower(const plan::Cast& cast, const DevicePlacement& placement,
              const topologies::ClusterSpec& cluster, const topologies::Topology* topology,
              std::span<const GpuLaws> gpus, const cost::MessageCost& messages,
              const LowerOptions& options);

}  // namespace trainyard::lower
