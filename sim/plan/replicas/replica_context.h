// What all parts of a strategy read when they write the program of one stage: the step, its groups
// of replicas, and the pass whose block is open.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/program_builder.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/split/stage_split.h"
#include "sim/plan/step_plan.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// What sets a pass apart from the others of its chunk. Passes of equal roles run the same block.
struct PassRole {
  bool first = false, last = false;
  auto operator<=>(const PassRole&) const = default;
};

// Parameters of one rank. Routed experts have replicas of their own.
struct StageParameters {
  std::int64_t dense = 0, experts = 0;         // trained
  std::array<Bytes, 2> frozen = {};            // weights beside those, of each group
  std::int64_t frozen_numbers = 0;             // of both
  Bytes fp8_copies;                            // of weights
  Bytes placeholders;                          // of gradients: models::Placeholders::kept
  std::vector<models::WeightMatrix> matrices;  // of both
};

// The replicas of one kind of parameters: of routed experts, or of all others.
struct ReplicaGroup {
  bool experts = false;
  const char* name = "parameters";     // in labels: what is exchanged
  const char* prefix = "";             // in labels: before the name of a layer
  DataParallelStrategy strategy = {};  // its shards are those of this group
  int ranks = 1;
  bool exchanges = false;  // there are other replicas
  int shard_ranks = 0;     // neighbours that share one copy; 0: all

  std::int64_t parameters(const StageParameters& stage) const {
    return experts ? stage.experts : stage.dense;
  }
  std::vector<models::WeightMatrix> matrices(const std::vector<models::WeightMatrix>& all) const;
};

// For whom a program is written: a stage, and where one rank of those with the same parameters
// leads the others, which of both.
struct StageSide {
  int stage = 0;
  bool leads = true;
  const StageGpus* gpus = nullptr;  // of the stage; nullptr: nothing asks for them
};

// A number of parameters in each of the groups.
using ByGroup = std::array<std::int64_t, 2>;
using BytesByGroup = std::array<Bytes, 2>;

// Of one stage. Parts write to `builder`, `held_gradients` and `host` only.
struct ReplicaContext {
  // All references must outlive it. Requires: `step.shape` and `step.layers` are set.
  ReplicaContext(ProgramBuilder& to, const StepPlan& of_step, const models::NetworkWork& of_network,
                 const recipe::TrainingRecipe& by_recipe, const recipe::ParallelPlan& by_plan,
                 StageSide of_stage, bool once);

  const DataParallelStrategy& strategy() const { return groups[0].strategy; }
  // Whether any parameters have other replicas.
  bool exchanges() const { return groups[0].exchanges || groups[1].exchanges; }
  // Whether a rank has gradients of a micro-batch behind it when those of the next come.
  bool accumulates() const { return step.shape.microbatches > 1; }
  // PyTorch frees gradients after the step (zero_grad's set_to_none) and allocates them layer by
  // layer in the backward pass. With more micro-batches they stay from the first one on, and DDP's
  // buckets hold them always.
  bool gradients_come_and_go() const;

  // Connections of the ranks that share one copy of the group's parameters, and across such copies.
  ConnectionId within(const ReplicaGroup& group);
  ConnectionId across(const ReplicaGroup& group);

  const models::LayerWork& layer(int place) const;
  // Parameters of the group that are updated and reduced with `place`: a matrix that several places
  // of the rank share counts once, for the first of them, whose backward pass completes its
  // gradient.
  std::int64_t updated_at(const ReplicaGroup& group, int place) const;
  // Parameters of the group whose gradients are there from the backward pass of `place` on: a
  // shared matrix counts for the last place that uses it.
  std::int64_t gradients_from(const ReplicaGroup& group, int place) const;

  // Bytes of the frozen weights of both groups that `place` needs, once for a matrix that several
  // places of the rank share.
  BytesByGroup frozen_at(int place) const;

  // A kernel that reads and writes these bytes and computes next to nothing.
  void copy(const std::string& what, Bytes read, Bytes written, OpGroup group);

  ProgramBuilder& builder;
  const StepPlan& step;
  const models::NetworkWork& work;
  const recipe::TrainingRecipe& recipe;
  const recipe::ParallelPlan& plan;
  int stage;
  bool leads;                          // StageSide::leads
  const StageGpus* gpus;               // StageSide::gpus
  bool updates_once;                   // after all passes of the step and not between them
  std::array<ReplicaGroup, 2> groups;  // the dense one first

  // State of the open block.
  schedule::Pass pass = schedule::Pass::forward;
  ChainRange range;
  PassRole role;

  Bytes held_gradients;  // taken by the first reductions of the step, given back by its optimizer
  recipe::HostMemory host;  // what leaves the GPU
};

}  // namespace trainyard::plan
