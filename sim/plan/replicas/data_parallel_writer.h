// Writes what a strategy of data parallelism adds to the program of one stage: gathers of
// parameters ahead of the layers that need them, reductions of gradients behind the backward pass,
// the memory of both, and the optimizer step.
//
// Collectives of one group run one after another in the order in which they are enqueued, as those
// of one NCCL communicator do, whichever stream shows them: a gather behind a reduction waits for
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/program_builder.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/replicas/gradient_buckets.h"
#include "sim/plan/stage_split.h"
#include "sim/plan/step_memory.h"
#include "sim/plan/step_plan.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// What sets a pass apart from the others of its chunk. Passes of equal roles run the same block.
struct PassRole {
  bool first = false, last = false;
  auto operator<=>(const PassRole&) const = default;
};

// Of one rank. Routed experts have replicas of their own.
struct StageParameters {
  std::int64_t dense = 0, experts = 0;
  Bytes fp8_copies;                            // of weights
  std::vector<models::WeightMatrix> matrices;  // of both
};

// Which replicas exchange: those of a shard group or all, and the same shard of each such group.
enum class ReplicaPort : std::uint8_t { data, expert_data, replica, expert_replica };

class DataParallelWriter {
 public:
  // All references must outlive the writer. Requires: `step.shape` and `step.layers` are set.
  // `updates_once`: the parameters change after all passes of the step and not between them.
  DataParallelWriter(ProgramBuilder& builder, const StepPlan& step, const models::NetworkWork& work,
                     const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan,
                     bool updates_once);

  // PyTorch frees gradients after the step (zero_grad's set_to_none) and allocates them layer by
  // layer in the backward pass. With more micro-batches they stay from the first one on, and DDP's
  // buckets hold them always.
  bool gradients_come_and_go() const;

  // Bytes of the gradients of these dense parameters, which stay until the step.
  Bytes gradient_bytes(std::int64_t parameters) const;

  // Adding new gradients to those of earlier micro-batches, where that is a kernel and not part of
  // this strategy's reductions.
  std::vector<models::WorkItem> accumulation(std::int64_t parameters) const;

  // `versions`: of the weights, where a pipeline without flushes keeps older ones.
  void hold_states(const StageParameters& parameters, int versions);

  // The role of pass `at` of a stage's order, as far as this strategy cares. `completes`: the
  // gradients of its part are complete after it.
  PassRole role(const std::vector<schedule::Slot>& order, std::size_t at, bool completes);

  // Around the work of a block: begin() after begin_block(), then before() and after() each place
  // in the order of the pass, end() after the last.
  void begin(schedule::Pass pass, ChainRange range, PassRole role);
  void before(int place);
  void after(int place);
  void end();

  // Everything in the block of the optimizer step. `copies`: parts of a stage that holds several
  // copies of the network, in the order in which they are reduced.
  void step(const StageParameters& parameters, const std::vector<ChainRange>& copies = {});

  // What leaves the GPU; activations, which others write, are not in it.
  const recipe::HostMemory& host() const { return host_; }

 private:
  // Places that are gathered and, with layer units, reduced together.
  struct Unit {
    int enters = 0, leaves = 0;  // first and last place of it in this pass
    std::int64_t parameters = 0, experts = 0;
    bool gathers = false, frees = false;
    StreamKind stream = StreamKind::gather;
    std::string name;
  };

  const models::LayerWork& layer(int place) const;
  std::int64_t parameters_of(int place) const;
  std::int64_t gradients_from(int place) const;
  bool experts_travel(const Unit& unit) const;
  Bytes gathered_bytes(const Unit& unit) const;
  Bytes copied_bytes(const Unit& unit) const;
  Bytes kept_gradients(std::int64_t parameters, const DataParallelStrategy& strategy);
  void scatter(std::int64_t parameters, const DataParallelStrategy& strategy, ReplicaPort port,
               ReplicaPort across, const std::string& name);
  bool is_root(int place) const;
  bool is_kept(int place) const;
  bool reduces_in_backward() const;
  void list_units(ChainRange range);
  void list_buckets(ChainRange range);
  void add_unit(int enters, int leaves, std::int64_t parameters, bool kept, std::string name);
  void fetch_until(std::size_t end);
  void fetch(Unit& unit);
  void arrive(std::size_t number);
  void leave(const Unit& unit);
  void reduce_unit(const Unit& unit);
  void reduce_place(int place);
  void reduce_rest();
  void compress_place(int place);
  void exchange(const std::vector<recipe::TensorBucket>& buckets, ReplicaPort port);
  int ranks_on(ReplicaPort port) const;
  ConnectionId connection(ReplicaPort port);
  Bytes compression_state_of(const StageParameters& parameters) const;
  void reduce(const std::vector<Bytes>& buckets, ReplicaPort port);
  void reduce_all(const StageParameters& parameters, const std::vector<ChainRange>& copies);
  void optimize(const StageParameters& parameters);
  void meet(std::int64_t parameters, ReplicaPort port);
  void clip(Bytes gradients);
  void gather_updated(std::int64_t parameters, ReplicaPort port);
  void copy(const std::string& what, Bytes read, Bytes written, OpGroup group);
  int norm_ranks() const;

  // Of what is offloaded: data_parallel_offload.cpp.
  bool offloads() const;
  bool gradients_leave() const;
  bool accumulates_on_host() const;
  Bytes updated_gradients(const StageParameters& parameters) const;
  std::int64_t updated_parameters(const StageParameters& parameters) const;
  std::int64_t tiles(const StageParameters& parameters) const;
  Bytes nvme_read(Bytes states, const StageParameters& parameters) const;
  void move_states(const StageParameters& parameters, StateBytes& states);
  void take_leaving_gradients(Bytes own);
  void copy_gradients(Bytes own, StreamSet waits, const std::string& name, MemoryKind kind,
                      const char* owner);
  void clip_on_host(Bytes gradients);
  void update_on_host(const StageParameters& parameters);
  StreamSet fetch_shard(const Unit& unit);
  void leave_shard(const Unit& unit);

  ProgramBuilder& builder_;
  const StepPlan& step_;
  const models::NetworkWork& work_;
  const recipe::TrainingRecipe& recipe_;
  const recipe::ParallelPlan& plan_;
  DataParallelStrategy strategy_, expert_strategy_;
  bool exchanges_ = false;  // there are other replicas
  bool exchanges_experts_ = false;
  bool updates_once_ = true;
  bool whole_step_ = false;  // kept layers stay until the step's last backward of their chunk
  bool compresses_ = false;
  bool norm_over_all_ = false;  // no rank holds all gradients of its place in the network
  GradientBuckets buckets_, expert_buckets_;
  recipe::TensorBuckets tensors_, expert_tensors_;  // instead of those, if gradients are compressed
  int buckets_sent_ = 0;
  std::int64_t gradient_shards_held_ = 0;  // bytes taken by the first reductions of the step
  recipe::HostMemory host_;

  // By pass and part of the stage: where it first and last stands in the order.
  struct Ends {
    std::size_t first = 0, last = 0;
  };
  std::array<std::vector<Ends>, 2> ends_;  // forward; backward

  // Of the open block.
  schedule::Pass pass_ = schedule::Pass::forward;
  ChainRange range_;
  PassRole role_;
  std::vector<Unit> units_;
  std::size_t fetched_ = 0;  // units whose gather is enqueued, if they have one
  std::size_t read_ = 0;     // units whose shard is read from NVMe, if it is there
};

}  // namespace trainyard::plan
