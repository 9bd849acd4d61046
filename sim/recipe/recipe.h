// How a network is trained and how the work is divided: what a scenario says under /training and
// /parallelism, as plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/layer/execution.h"
#include "models/layer/kernel.h"
#include "sim/base/units.h"
#include "sim/recipe/gradient_compression.h"
#include "sim/recipe/input_pipeline.h"
#include "sim/recipe/offload_options.h"
#include "sim/recipe/parameter_servers.h"
#include "sim/recipe/pipeline.h"
#include "sim/recipe/precision.h"

namespace trainyard::recipe {

// lamb has Adam's moments, and scales each array's update by the norms of both. Source: You et al.,
// Large Batch Optimization for Deep Learning, ICLR 2020. lion has one moment. Source: Chen et al.,
// Symbolic Discovery of Optimization Algorithms, NeurIPS 2023. none: gradients are made and
// reduced, and nothing is updated.
enum class Optimizer : std::uint8_t { sgd, sgd_momentum, adam, lamb, lion, none };

// An optimizer that runs as plain operators, array by array, rather than as one kernel that reads
// and writes every state once.
struct OptimizerOperators {
  double accesses = 0;  // fp32 numbers that they read or write for each parameter; 0: one kernel
  double launches = 0;  // for each array of parameters, in host times of an average kernel
  bool waits = false;   // the host launches them when the gradients are there, as one was read
  // How often all gradients that a rank holds are read or written beside accumulation, reduction
  // and clipping: set to zero, looked at for NaN, scaled.
  int gradient_passes = 0;
};

// What a rank's device holds beside what its program asks for. The defaults are nothing; a scenario
// has its own (docs/memory.md).
struct MemoryAllowance {
  Option<Bytes> context = Bytes(0);  // of the driver, with the code of kernels and libraries
  Option<double> fragmentation =
      0;  // that the framework's allocator reserves, in parts of the allocated
  // What is left of it when an allocator that is short of room has given back what it can: so much
  // has to fit.
  Option<double> least_fragmentation = depends(0.0);
  Option<Bytes> blas_workspace =
      depends(Bytes(0));  // of the matrix library, from the framework's allocator
  bool nccl_buffers = false;
  // Micro-batches of a step whose outputs the trainer holds, each until it reads the next one into
  // the same buffer: so many all the time. 0: the loss alone has them.
  Option<int> kept_outputs = 0;
  // Of the host before the GPU, at most: blocks of collectives inside of layers stay reserved until
  // the GPU has passed them. 0: they are back when the script frees them.
  Option<int> launches_ahead = 0;
  // Of what comes back late so much has to fit all the same, as an allocator that is short of room
  // does not get all of it back in pieces that it can use.
  Option<double> late_share = 0;
};

// Host time of a collective's call, beside its launch.
struct CollectiveCall {
  Option<Duration> time = Duration(0);
  Option<Duration> per_rank = Duration(0);  // of the group
};

// What adds a micro-batch's gradients of weights to those before, where whole gradients are kept.
//   product:    the product that makes them. Source: Megatron-LM, gradient_accumulation_fusion.
//   kernel:     one for each gradient as soon as it is made. Source: Megatron-LM, 2021, main_grad.
//   after_pass: the same when the backward pass is over. Source: nanotron, FP32GradientAccumulator.
//   converted:  after the pass too, one that brings each to the sum's type and one that adds.
//               Source: DeepSpeed, BF16_Optimizer.update_hp_grads.
//   autograd:   one for each from the second micro-batch on; the first one's gradients are the sum.
//               Source: PyTorch, accumulate_grad.h.
enum class Accumulation : std::uint8_t { product, kernel, after_pass, converted, autograd };

struct TrainingRecipe {
  std::int64_t global_batch = 1;  // sequences or images per optimizer step, over all ranks
  models::MicroBatch micro_batch;
  Precision precision;
  Optimizer optimizer = Optimizer::adam;
  OptimizerOperators optimizer_operators;
  models::Recomputation recompute;
  models::Finetune finetune;
  // No backward pass and no update; activations are freed as soon as the next layer has run.
  bool forward_only = false;
  Option<Accumulation> accumulation = depends(Accumulation::product);
  models::KernelChoice kernels;         // by_hand: Megatron-LM; else PyTorch's kernels and memory
  std::optional<Duration> launch_time;  // host time per kernel; without: the profile's
  CollectiveCall collective_call;
  bool gradient_clipping = false;  // by the norm of all gradients
  MemoryAllowance memory;
  OffloadOptions offload;
  std::optional<InputPipeline> input;  // empty: input is there in time
  // That programs hold one after another, where nothing else says how many; at least three, of
  // which the first and the last are not measured, or one.
  int steps = 1;
};

// Servers of one's own, instead of rented GPUs. Dollars.
struct Ownership {
  double server = 0;         // to buy one, with its share of the network
  double years = 0;          // until it is worth nothing
  double utilisation = 1;    // share of those years during which it trains
  double kilowatt_hour = 0;  // of electricity
  double pue = 1.58;         // power of the site over that of the servers
  Watts host_power;          // of a server beside its GPUs
  double yearly = 0;         // hosting and staff of one server
};

// How long training goes on and what it costs, which no step depends on.
struct TrainingLength {
  double samples = 0;              // 0: not said
  std::optional<double> gpu_hour;  // dollars for one GPU and hour
  std::optional<Ownership> own;
};

// The axes of a rank's coordinate, fastest first in Megatron-LM's order tp-cp-dp-pp.
enum class Axis : std::uint8_t { tensor, context, data, pipeline };
inline constexpr std::size_t kAxes = 4;

struct ParallelDegrees {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  int world_size() const { return tensor * context * data * pipeline; }
  // Ranks that hold the same part of the network, and see other sequences or other parts of them.
  int replicas() const { return context * data; }
  int along(Axis axis) const {
    switch (axis) {
      case Axis::tensor: return tensor;
      case Axis::context: return context;
      case Axis::data: return data;
      case Axis::pipeline: return pipeline;
    }
    return 1;
  }
};

// What replicas divide and how they exchange gradients: what a scenario says under
// /parallelism/data_parallel. Which strategy reads which: StrategyEntry::accepts
// (sim/plan/replicas/data_parallel.h).
// How many samples of a micro-batch each replica takes.
enum class BatchSplit : std::uint8_t { equal, by_speed, list };

struct DataParallelOptions {
  std::string kind = "allreduce";                          // a name of data_parallel_strategies()
  Bytes bucket_size = Bytes(std::int64_t{25} << 20);       // of gradients reduced together
  Bytes first_bucket_size = Bytes(std::int64_t{1} << 20);  // PyTorch DDP starts with a small one
  bool overlap_backward = true;                   // buckets are reduced while backward goes on
  std::optional<bool> reduce_every_microbatch{};  // empty: as the strategy does
  Option<int> shard_size = 0;                     // ranks that share one copy
  Option<int> prefetch_layers = 1;                // layers gathered ahead of the one that computes
  Option<bool> limit_all_gathers = true;  // false: gathers run ahead as far as the host lets them
  Option<bool> reshard_after_forward = depends(true);  // a scenario: without a pipeline
  std::optional<models::Dtype> reduce_dtype{};         // empty: Precision::gradients
  Option<bool> gradient_as_bucket_view =
      true;  // false: PyTorch DDP copies gradients to buckets and back
  std::optional<bool> overlap_param_gather{};    // empty: as the strategy does
  std::optional<Bytes> allgather_bucket_size{};  // of updated parameters; empty: bucket_size
  Option<bool> all_reduce_gradients = false;
  // allreduce: gradients are put together by what is there when a thread of each rank looks, once
  // in so long, and all have agreed. 0: in buckets that are the same in every step. Source:
  // Sergeev and Del Balso, Horovod, 2018; horovod/common/operations.cc, controller.cc.
  Option<Duration> cycle_time = Duration(0);
  // Ranks agree by a bit for each gradient, as they remember what it is. Source: horovod/common/
  // response_cache.cc.
  Option<bool> response_cache = true;
  // nn_data_parallel: what is gathered on the first GPU is the loss of each, and not their outputs.
  Option<bool> loss_in_model = false;
  // nn_data_parallel: part of a launch's host time that needs the interpreter's lock.
  Option<double> lock_share = 0.5;
  Option<int> steps_between = 100;  // local_sgd: from one meeting of the replicas to the next
  BatchSplit batch_split = BatchSplit::equal;
  std::vector<int> batches{};          // BatchSplit::list: of each replica
  ParameterServers parameter_servers;  // parameter_server
  GradientCompression compression;     // allreduce
};
inline constexpr int kMostPrefetchLayers = 2;

struct ParallelPlan {
  ParallelDegrees degrees;
  std::array<Axis, kAxes> rank_order = {Axis::tensor, Axis::context, Axis::data, Axis::pipeline};
  models::TensorParallel tensor_parallel;
  models::ContextParallel context_parallel;
  // Expert parallelism is a second grid over the same ranks: experts.tensor x experts.ranks x
  // replicas of the experts, with the same stages. Source: Megatron-LM's parallel_state, MoE
  // Parallel Folding, 2025.
  models::ExpertParallel experts;
  // Work of the experts of each expert-parallel rank, in units of the even share; empty: all 1.
  std::vector<double> expert_load;
  int expert_replicas() const {
    return degrees.tensor * degrees.context * degrees.data / (experts.ranks * experts.tensor);
  }

  Pipeline pipeline;

  DataParallelOptions data_parallel;
};

// Slows the kernels of one rank: duration x factor, factor = numerator / denominator > 0.
struct Straggler {
  int rank = 0;
  double compute_slowdown = 1;
};

enum class Fidelity : std::uint8_t {
  closed_form,  // the law of each message; exact where no link is shared
  flow,         // max-min fair flows on the topology's links
};

}  // namespace trainyard::recipe
