// One training step as rank programs: the schedule's passes filled with the network's kernels, the
// collectives of tensor and data parallelism, the messages of the pipeline, and the memory they
// hold.
//
// All ranks of a stage run the same program. Kernels and transfers appear as indices into the
// tables of the StepPlan; the lowering gives them times.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/network.h"
#include "sim/engine/program.h"
#include "sim/plan/memory_kind.h"
#include "sim/plan/pipeline_messages.h"
#include "sim/plan/stage_split.h"
#include "sim/recipe/rank_map.h"
#include "sim/recipe/recipe.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// The streams of a rank, by Op::stream. Each direction of the pipeline has its own, as messages to
// different peers do not wait for each other.
enum class StreamKind : std::uint8_t {
  compute,
  tensor,
  context,
  expert,
  data,
  send_forward,
  send_backward,
  receive_forward,
  receive_backward,
  // Of chunks and copies of the network that go up the stages.
  send_forward_up,
  send_backward_up,
  receive_forward_up,
  receive_backward_up,
  // Gathers of parameters take turns on two streams, so that a layer waits for its own and not for
  // the one after it.
  gather,
  gather_second,
  replica,
  // Of what is offloaded (offload_options.h): work of the host on its own memory, copies over PCIe
  // in each direction, and transfers between host memory and NVMe.
  host_optimizer,
  to_host,
  to_device,
  nvme_read,
  nvme_write,
};
inline constexpr int kStreams = 21;

// What an op belongs to, by Op::group.
enum class OpGroup : std::uint8_t {
  compute,
  optimizer,
  tensor,
  context,
  expert,
  data,
  pipeline,
  host_optimizer,
  host_copy,
};

// Op::port of collectives; that of sends and receives is a ChannelPort.
enum class CollectivePort : std::uint8_t {
  tensor,
  context,
  expert,
  expert_tensor,
  data,            // the replicas, or the part of them that shares one copy of what they shard
  expert_data,     // gradients of routed experts
  replica,         // ranks that hold the same shard, one of each such part
  expert_replica,  // the same of routed experts
  norm,            // ranks whose gradients (or shards of them) together are the network's
  tables,          // ranks that share a recommender's tables
  // Of one rank alone, by what it moves: between the memories of GPU and host, within the host's
  // memory (each byte read or written), and between that and NVMe.
  to_host,
  to_device,
  host_memory,
  nvme_read,
  nvme_write,
};
inline constexpr std::size_t kCollectivePorts = 15;
inline constexpr std::array<CollectivePort, 5> kHostPorts = {
    CollectivePort::to_host, CollectivePort::to_device, CollectivePort::host_memory,
    CollectivePort::nvme_read, CollectivePort::nvme_write};

struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::all_reduce;  // means nothing on kHostPorts
  Bytes bytes;                                       // the whole buffer
  models::Routing routing{};                         // GroupCollective::routing
  friend bool operator==(const CollectiveSpec&, const CollectiveSpec&) = default;
};

// What a call of a program is for.
enum class CallKind : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  pair,  // a forward, and the backward of another micro-batch
  step,
};
struct CallInfo {
  CallKind kind = CallKind::forward;
  int microbatch = 0;
  int chunk = 0;                // the part of the stage, if it holds several copies
  int backward_microbatch = 0;  // of a pair
  int backward_chunk = 0;
};

struct StageProgram {
  engine::Program program;
  std::vector<CallInfo> calls;           // by Program::calls
  std::vector<std::size_t> round_calls;  // by round: how many calls are done when it is
  std::int64_t parameters = 0;           // held by one rank of the stage
  recipe::HostMemory host;               // of one rank
};

// Steps that programs hold one after another without a flush, and which of them is what a step
// takes: from the end of the one before to its own. One if the pipeline is flushed.
struct Rounds {
  int count = 1, measured = 0;
};

// What a place of the chain keeps of one micro-batch; `owner` as MemoryEffect::owner names it.
struct KeptByPlace {
  std::string owner;
  models::Activations kept;
};

struct StepPlan {
  schedule::PipelineShape shape;
  Rounds rounds;
  std::vector<ChainRange> layers;  // by virtual stage
  std::vector<KeptByPlace> kept;   // by place of the chain
  std::vector<StageProgram> stages;
  std::vector<models::Kernel> kernels;  // by Program::kernels
  std::vector<bool> routed;             // of those, which work follows the load of a rank's experts
  // By CollectivePort, then by Op::subject of the collectives on that port.
  std::array<std::vector<CollectiveSpec>, kCollectivePorts> collectives;
  std::vector<Bytes> messages;  // ... of sends and receives
  int shard_ranks = 0;          // neighbours on the data axis that share one copy; 0: all of them
  int expert_shard_ranks = 0;   // the same of the replicas of routed experts
  bool norm_over_all = false;   // no rank holds all gradients of its place in the network
  Flops model_flops;            // of one step over all ranks, without recomputation
  Flops executed_flops;         // with it
};

// The stream and the group of the report of collectives on a port.
StreamKind stream_of(CollectivePort port);
OpGroup group_of(CollectivePort port);

// The groups of ranks that communicate on a port, each rank in one; empty where every group is a
// rank alone, and for ports that few plans use if this one does not. Gradients are summed over the
// data-parallel and the context-parallel ranks: both have seen other tokens with the same
// parameters; and over both copies of the network, if there are two.
std::vector<std::vector<Rank>> groups_of(const StepPlan& plan, const recipe::RankGrids& ranks,
                                         CollectivePort port);

// Micro-batches per replica and step: global_batch / (data * micro_batch).
int microbatches(const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan);

// How each layer of the plan is executed.
models::Execution execution(const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan);

// Requires: degrees that divide what they must (sim/scenario validates), a known schedule that
// supports the shape. `work` is network_work(network, execution(recipe, plan)). Schedules that need
// times find them in `inputs`.
StepPlan plan_step(const models::NetworkWork& work, const recipe::TrainingRecipe& recipe,
                   const recipe::ParallelPlan& plan, const schedule::ScheduleInputs& inputs = {});

// The shape of a plan's pipeline. Requires: a known schedule.
schedule::PipelineShape pipeline_shape(const recipe::TrainingRecipe& recipe,
                                       const recipe::ParallelPlan& plan);

}  // namespace trainyard::plan
