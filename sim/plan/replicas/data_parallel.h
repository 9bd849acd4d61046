// Strategies of data parallelism: what the replicas divide among them, and which collectives put it
// together again.
//
// A strategy is a pure function from what a scenario says to a DataParallelStrategy: what is
// divided among whom, and the parts (parts/parts.h) that write its ops and memory. Psi parameters,
// n ranks that share a copy; bytes of one ring per rank and step, in parameter-sized elements, and
// states per parameter with 16-bit parameters and gradients and fp32 Adam:
//
//   allreduce              2 (n-1)/n Psi     16
//   zero1                  2 (n-1)/n Psi     4 + 12/n    all_reduce: 3 (n-1)/n Psi
//   zero2                  2 (n-1)/n Psi     2 + 14/n    reducing m micro-batches: (m+1) (n-1)/n
//   zero3                  3 (n-1)/n Psi     16/n
//   fsdp                   as zero3 but for layers kept between forward and backward
//   hsdp                   as fsdp in n ranks, and an all-reduce of Psi/n over the replicas
//   distributed_optimizer  as zero1, gathered under the next forward; with fp32 gradients 6 + 12/n
//   parameter_server       1 Psi out, 1 in   4         16 on the server's host; on the GPUs
//   themselves
//                          2 (n-1)/n Psi     4 + 12/n, and 2 (n-1)/n of others' gradients
//   nn_data_parallel       1 Psi out, 1 in   16 + 2 on the first rank, 4 on the others
//   local_sgd              2 (n-1)/n Psi / H in fp32, 16 + 8: the last common parameters, outer
//   momentum
//
// Source: Rajbhandari et al., ZeRO, SC 2020; Zhao et al., PyTorch FSDP, VLDB 2023; Megatron-LM's
// distributed optimizer. docs/data-parallel.md has the equations and their tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/network.h"
#include "sim/recipe/recipe.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

enum class Gathering : std::uint8_t {
  none,           // every rank has the parameters
  after_step,     // updated shards, when the optimizer is done
  first_forward,  // the same, layer by layer under the first forward pass
  each_pass,      // before a layer's forward and again before its backward
};

struct ReplicaContext;
struct StepPlan;
class ReplicaPart;
class StageConnections;
// Makes a part for one stage, whose context outlives it.
using PartMaker = std::function<std::unique_ptr<ReplicaPart>(ReplicaContext&)>;

// Adds roles that stand beside the stages, behind the roles and the players of those.
using RoleMaker = void (*)(StepPlan&, const models::NetworkWork&, StageConnections&,
                           const recipe::TrainingRecipe&, const recipe::ParallelPlan&);

// The network as one of `plan.degrees.data` ranks runs it, the first of them (`leads`) or another.
using NetworkView = models::NetworkWork (*)(const models::NetworkWork&,
                                            const recipe::ParallelPlan& plan, bool leads);

struct DataParallelStrategy {
  // Ranks that share one copy; 1: every rank has it.
  int parameter_shards = 1, gradient_shards = 1, optimizer_shards = 1;
  int replicas = 1;  // of the ranks that share; > 1: their gradient shards are all-reduced

  Gathering gathering = Gathering::none;
  bool each_microbatch = false;  // reduced in every backward pass, not only in the step's last
  // FSDP. The sharded parameters are the optimizer's own; what is gathered is a copy in the compute
  // type, and gradients of a layer exist until they are reduced.
  bool layer_units = false;
  bool trains_apart = false;  // gradients are not exchanged
  // Another role updates the parameters and holds the optimizer's states.
  bool updates_elsewhere = false;
  RoleMaker add_roles = nullptr;  // nullptr: there are none
  // How the first rank sees the network, which updates all parameters, and the others do, whose
  // program is another; nullptr: all are alike.
  NetworkView seen_by = nullptr;
  bool has_leader() const { return seen_by != nullptr; }
  // Each pass has gradients of its own on every rank, which the strategy's parts sum and free.
  bool fresh_gradients = false;
  // > 1: ranks do not wait for each other, and so many steps of each are simulated, of which the
  // first `steps_before` are not measured.
  int own_steps = 1, steps_before = 0;
  bool leaves_late = false;  // steps go on without the ranks that are late
  double counted = 1;        // part of the samples of a step whose gradients are used

  // In the order in which they act at each door.
  std::vector<PartMaker> parts = {};
};

struct StrategyEntry {
  std::string_view name;  // as written in a scenario
  std::string_view summary;
  // For `ranks` that hold the same part of the network (ParallelDegrees::replicas). Requires: a
  // shard size that divides them.
  DataParallelStrategy (*build)(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                                int ranks);
  // Keys of /parallelism/data_parallel that mean something to it, beside those of the buckets.
  std::span<const std::string_view> accepts = {};
  // Every rank does what one alone would; they do no more together than exchange gradients.
  bool only_exchanges = false;
  // The framework it comes from, where that one refuses it with a pipeline.
  std::string_view refused_with_pipeline = {};
  // With a pipeline gradients are reduced once per step unless it is told otherwise.
  bool once_with_pipeline = false;
};

// All strategies, in the order in which help lists them.
std::span<const StrategyEntry> data_parallel_strategies();
// nullptr if there is none of that name.
const StrategyEntry* find_strategy(std::string_view name);

// The plan's own; with one replica nothing is divided or exchanged. Requires: a known name.
DataParallelStrategy strategy_of(const recipe::ParallelPlan& plan,
                                 const recipe::TrainingRecipe& recipe);

// The same for parameters that `replicas` ranks hold: what is divided at all is divided among
// those, with several copies of the shards among those of one copy.
DataParallelStrategy among(int replicas, DataParallelStrategy strategy);

// Why the strategy cannot be combined with these passes, in words; nullopt if it can.
std::optional<std::string> unsupported(const DataParallelStrategy& strategy,
                                       const schedule::PipelineShape& shape,
                                       const schedule::StageOrders& orders);

// The pure functions behind the table.
DataParallelStrategy allreduce(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                               int ranks);
DataParallelStrategy zero1(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                           int ranks);
DataParallelStrategy zero2(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                           int ranks);
DataParallelStrategy zero3(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                           int ranks);
DataParallelStrategy fsdp(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                          int ranks);
DataParallelStrategy hsdp(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                          int ranks);
DataParallelStrategy local_sgd(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                               int ranks);
DataParallelStrategy parameter_server(const recipe::DataParallelOptions&,
                                      const recipe::TrainingRecipe&, int ranks);
DataParallelStrategy gpu_shards(const recipe::DataParallelOptions&, const recipe::TrainingRecipe&,
                                int ranks);
DataParallelStrategy nn_data_parallel(const recipe::DataParallelOptions&,
                                      const recipe::TrainingRecipe&, int ranks);
DataParallelStrategy distributed_optimizer(const recipe::DataParallelOptions&,
                                           const recipe::TrainingRecipe&, int ranks);

}  // namespace trainyard::plan
