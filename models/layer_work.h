// What one layer of a network does for one micro-batch on one rank: kernels and tensor-parallel
// collectives in the order in which the training script enqueues them.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/kernel.h"
#include "sim/base/collective_kind.h"
#include "sim/base/units.h"

namespace trainyard {

enum class Recompute : std::uint8_t { none, selective, full };
std::string_view name(Recompute recompute);  // "none", "selective", "full"

// When a tensor-parallel collective of the backward pass is waited for.
//   none:            at once (every collective is exposed).
//   weight_gradient: after the GEMM that does not need it, as Megatron-LM does: the all-reduce (or
//                    reduce-scatter) of the input gradient runs under the weight-gradient GEMM, the
//                    extra all-gather of sequence parallelism under the input-gradient GEMM.
//                    Source: Korthikanti et al. 2022, section 4.2.2; Megatron-LM tensor_parallel.
enum class TensorOverlap : std::uint8_t { none, weight_gradient };

// How a layer is executed. Degrees divide the layer; sizes are those of one micro-batch.
struct Execution {
  std::int64_t micro_batch = 1;      // sequences or images
  std::int64_t sequence_length = 1;  // tokens; ignored by convolutional networks
  int tensor = 1;                    // tensor-parallel degree
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  bool fused_attention = false;
  TensorOverlap tensor_overlap = TensorOverlap::weight_gradient;
  Dtype compute = Dtype::bf16;
};

struct NamedKernel {
  std::string name;  // "qkv", "attention scores", "fc1 weight gradient"
  Kernel kernel;
  bool weight_gradient = false;  // may be deferred by a zero-bubble schedule
};

// Starts a collective in the tensor-parallel group, after all kernels before it.
struct TensorCollective {
  std::string name;
  CollectiveKind kind = CollectiveKind::all_reduce;
  Bytes bytes;  // the whole buffer
};

// The kernels that follow wait for every tensor collective started so far.
struct TensorWait {};

using WorkItem = std::variant<NamedKernel, TensorCollective, TensorWait>;

struct LayerWork {
  std::string name;  // "embedding", "transformer layer", "logits and loss", "conv2_1"
  std::vector<WorkItem> forward;
  // Run again just before `backward`; empty without full recomputation. What selective
  // recomputation runs again stands inside `backward`, where it is needed, with "recompute " before
  // its names.
  std::vector<WorkItem> recompute;
  std::vector<WorkItem> backward;
  std::int64_t parameters = 0;  // held by one tensor-parallel rank
  // Of those, the copy of the embedding that tied output weights are. Where embedding and logits
  // are on the same stage the copy does not exist; elsewhere its gradient is all-reduced with the
  // embedding's.
  std::int64_t tied_parameters = 0;

  // Kept on one rank from forward to backward, recomputation taken into account.
  Bytes activations;
  // Live on one rank only during this layer's backward: what recomputation restores.
  Bytes workspace;
  // The tensor handed to the next layer, whole (before any split over the group); 0 for the last.
  Bytes output;

  // Matrix multiplications and attention of one forward pass over all tensor-parallel ranks;
  // attention is counted in full, as Megatron-LM does. Model FLOPs of a step are three times their
  // sum.
  Flops forward_model_flops;
  Flops recompute_model_flops;  // of those, what recomputation executes again
};

}  // namespace trainyard
