// The batches that ranks of the first stage take from workers on the host, as roles and
// connections.
//
//   storage (one for each rank)   worker w of W              rank
//                                 waits for a free place <-- took batch b - W P
//   reads batch b             <-- asks for batch b
//                             --> decodes and augments it
//                                 batch b = w, w + W, ... --> copies it to its GPU, runs the pass
//
// A batch is a micro-batch. The rank takes them in their order, as PyTorch's loader does, and each
// worker has P of them in work or waiting. What workers share, cores and storage, is in the times
// (recipe/input_pipeline.h).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/plan/program_builder.h"
#include "sim/plan/stage_connections.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/recipe.h"

namespace trainyard::plan {

// Steps until every worker has prepared as many batches for whole steps as any other: lcm(W, m) of
// them for m micro-batches. The first so many are not measured, as many after them are.
Rounds input_rounds(const recipe::InputPipeline& input, int microbatches);

class InputBatches {
 public:
  // `others`: players that other roles put between the ranks and those that this adds. All
  // references must outlive it. Requires: recipe.input; ranks stand in the cast of `step`.
  InputBatches(StepPlan& step, StageConnections& connections, const recipe::TrainingRecipe& recipe,
               const recipe::RankGrids& ranks, int others);

  // The block in which a rank takes the batch of that number and copies it.
  std::uint32_t take(ProgramBuilder& builder, int batch);
  // Workers and, where something is read, storage, behind the players that are there.
  void add_roles();

 private:
  // Of a rank and worker w, or of worker and storage, to_peer() by worker.
  ConnectionId batches() { return between("batches from workers", true, false); }
  ConnectionId places() { return between("places for batches", false, false); }
  ConnectionId requests() { return between("requests to storage", false, true); }
  ConnectionId samples() { return between("samples from storage", true, true); }
  ConnectionId between(std::string_view name, bool comes, bool from_storage);
  ConnectionId copies();
  Player worker(std::size_t taker, std::uint32_t number) const;
  Player storage(std::size_t taker) const;
  bool reads() const;
  // Whether a worker waits for a place before that one of its batches.
  bool waits_for_place(int own_batch) const { return own_batch >= input_.prefetch; }
  void add_workers();
  void add_storage();
  void add_role(Role role, ProgramBuilder& builder, std::uint32_t of_each);
  void work(ProgramBuilder& builder, Seconds time, const std::string& label, StreamKind stream);

  StageConnections& connections_;
  const recipe::InputPipeline& input_;
  std::int64_t samples_;        // of a batch
  std::uint32_t workers_;       // of each rank
  int all_batches_;             // of a rank
  std::vector<Player> takers_;  // the ranks of the first stage
  std::uint32_t first_player_;  // behind all others
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> blocks_;
};

}  // namespace trainyard::plan
