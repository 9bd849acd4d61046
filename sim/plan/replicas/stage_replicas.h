// What a strategy of data parallelism adds to the program of one stage, put together from its
// parts: gathers of parameters ahead of the layers that need them, reductions of gradients behind
// the backward pass, the memory of both, and the optimizer step.
//
// Collectives of one group run one after another in the order in which they are enqueued, as those
// of one NCCL communicator do, whichever stream shows them: a gather behind a reduction waits for
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/plan/replicas/replica_part.h"

namespace trainyard::plan {

// Owner in the memory ledger of gradients that wait to be added to their sums.
inline constexpr const char* kUnsummed = "gradients beside their sums";

class StageReplicas {
 public:
  // All references must outlive it. Requires: `step.shape` and `step.layers` are set.
  // `updates_once`: the parameters change after all passes of the step and not between them.
  StageReplicas(ProgramBuilder& builder, const StepPlan& step, const models::NetworkWork& work,
                const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan,
                StageSide side, bool updates_once);

  // Whether gradients are allocated layer by layer in the backward pass.
  bool gradients_come_and_go() const { return context_.gradients_come_and_go(); }

  // Of the gradients of a place's parameters, which stay until the step.
  Bytes gradient_bytes(int place) const;

  // Those of these places that a backward pass makes beside their sums, one layer's after the
  // other, and gives back when it is over.
  Bytes gradients_of_pass(ChainRange places) const;

  // Adding new gradients to those of earlier micro-batches, where that is a kernel and not part of
  // this strategy's reductions.
  std::vector<models::WorkItem> accumulation(std::int64_t parameters) const;

  // `versions`: of the weights, where a pipeline without flushes keeps older ones.
  void hold_states(const StageParameters& parameters, int versions);

  // Categories in pools of their own (Program::pools). PyTorch gathers and reduces on streams of
  // their own, whose blocks its allocator keeps for them; what micro-batches sum before that is the
  // compute stream's. Source: torch/distributed/fsdp, _fully_shard/_fsdp_collectives.py;
  // c10/cuda/CUDACachingAllocator.cpp.
  std::uint32_t pools() const;

  // The role of pass `at` of a stage's order, as far as this strategy cares. `completes`: the
  // gradients of its part are complete after it.
  PassRole role(const std::vector<schedule::Slot>& order, std::size_t at, bool completes);

  // The doors of the parts (replica_part.h).
  void start();
  void begin(schedule::Pass pass, ChainRange range, PassRole role);
  void before(int place);
  void after(int place);
  void end();
  std::vector<GradientCut> cuts(int place, const std::vector<models::WorkItem>& backward) const;
  void during(int place, const GradientCut& cut);
  void step(const StageParameters& parameters, const std::vector<ChainRange>& copies = {});

  // What leaves the GPU; activations, which others write, are not in it.
  const recipe::HostMemory& host() const { return context_.host; }

 private:
  // Micro-batches add to sums of their gradients that stay.
  bool sums_gradients() const;
  bool gives_gradients_back() const;
  void look_at(const std::vector<schedule::Slot>& order);

  ReplicaContext context_;
  std::vector<std::unique_ptr<ReplicaPart>> parts_;
  // Where the order has its first forward pass (and its first that ends a backward one) of each
  // part of the stage.
  std::array<std::vector<std::size_t>, 2> first_passes_;
  std::array<PassRole, 2> asked_;  // what any part tells apart: of forward passes, and of others
  std::size_t passes_of_step_ = 1;
};

}  // namespace trainyard::plan
