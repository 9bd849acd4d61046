// What one layer of a network does for one micro-batch on one rank: kernels and the collectives of
// the groups that divide the layer, in the order in which the training script enqueues them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/layer/activations.h"
#include "models/layer/expert_routing.h"
#include "models/layer/kernel.h"
#include "models/layer/recompute.h"
#include "sim/base/collective_kind.h"
#include "sim/base/units.h"

namespace trainyard::models {

// When a tensor-parallel collective of the backward pass is waited for.
//   none:            at once (every collective is exposed).
//   weight_gradient: after the GEMM that does not need it, as Megatron-LM does: the all-reduce (or
//                    reduce-scatter) of the input gradient runs under the weight-gradient GEMM, the
//                    extra all-gather of sequence parallelism under the input-gradient GEMM.
//                    Source: Korthikanti et al. 2022, section 4.2.2; Megatron-LM tensor_parallel.
//   chunked:         the same, and matrix multiplications whose input is gathered or whose output
//                    is scattered are cut in pieces that hide the pieces of their collective, as
//                    Transformer Engine does (models/transformer/chunked_product.cpp).
enum class TensorOverlap : std::uint8_t { none, weight_gradient, chunked };

// How attention sees tokens that other ranks of the context-parallel group hold.
//   ring:       keys and values travel round the group, one step of attention hides one hop. Tokens
//               are dealt so that every rank has the same share of the causal triangle.
//               Source: Liu et al., Ring Attention, 2023; dealing: Brandon et al., Striped
//               Attention, 2023, and Transformer Engine's pairs of chunks, which we follow.
//   all_gather: keys and values are gathered before attention. Source: Llama 3, 2024, section
//               3.3.2.
//   ulysses:    all-to-all turns a part of the tokens into a part of the heads and back. Source:
//               Jacobs et al., DeepSpeed Ulysses, 2023.
enum class ContextMethod : std::uint8_t { ring, all_gather, ulysses };

// What becomes of the element-wise work between matrix multiplications.
//   by_hand:  the fused kernels of Megatron-LM.
//   eager:    PyTorch as it runs a script: every operator is a kernel that reads and writes memory.
//   compiled: torch.compile: chains of operators are one kernel. See transformer_pytorch.cpp.
enum class Fusion : std::uint8_t { by_hand, eager, compiled };

// How a layer is executed. Degrees divide the layer; sizes are those of one micro-batch.
struct Execution {
  std::int64_t micro_batch = 1;              // sequences or images
  std::int64_t sequence_length = 1;          // tokens; ignored by networks of images
  std::int64_t decoder_sequence_length = 0;  // tokens of a decoder that has an encoder beside it
  std::int64_t predictions = 0;    // tokens of a sequence that a masked-language head sees; 0: all
  std::int64_t memory_length = 0;  // tokens that cross-attention sees; set inside models only
  int tensor = 1;                  // tensor-parallel degree
  int context = 1;                 // context-parallel degree: parts of the sequence
  ContextMethod context_method = ContextMethod::ring;
  int expert = 1;         // expert-parallel degree: ranks that share a layer's experts
  int expert_tensor = 1;  // ranks that divide the columns of each expert
  double capacity = 0;    // capacity factor of an expert; 0: no token is dropped
  int replicas = 1;       // data-parallel degree: ranks that share a recommender's tables
  // Rows that go to one server share their way to it.
  bool hierarchical_dispatch = false;
  std::optional<Dtype> dispatch_dtype;  // of rows on their way to experts; without: as stored
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  RecomputeModules recompute_modules;  // of Recompute::modules
  RecomputeLayers recompute_layers;
  bool fused_attention = false;
  TensorOverlap tensor_overlap = TensorOverlap::weight_gradient;
  int tensor_chunks = 0;  // of TensorOverlap::chunked: pieces; 0: as Transformer Engine
  Dtype compute = Dtype::bf16;
  Fusion fusion = Fusion::by_hand;  // a convolutional network's kernels are eager ones either way
  std::optional<Fusion> loss;       // of logits and loss; empty: as `fusion`. Not by_hand
};

// Pieces in which a rank's own tokens are exchanged with TensorOverlap::chunked. As Transformer
// Engine does, gathers go round in a ring and are not cut further, scatters are cut in four.
inline constexpr int kDefaultTensorChunks = 4;
inline int pieces_of_rows(const Execution& execution) {
  return execution.tensor_chunks > 0 ? execution.tensor_chunks : kDefaultTensorChunks;
}

struct NamedKernel {
  std::string name;  // "qkv", "attention scores", "fc1 weight gradient"
  Kernel kernel;
  bool weight_gradient = false;  // may be deferred by a zero-bubble schedule
  bool routed = false;           // its work follows the load of the rank's experts or tables
};

// The ranks that share a layer and talk inside it.
enum class LayerGroup : std::uint8_t { tensor, context, expert, expert_tensor, tables };

// Starts a collective in such a group, after all kernels before it.
struct GroupCollective {
  std::string name;
  CollectiveKind kind = CollectiveKind::all_reduce;
  Bytes bytes;  // the whole buffer
  LayerGroup group = LayerGroup::tensor;
  Routing routing{};  // of rows that share their way: the buffer has top_k rows for each token
};

// The kernels that follow wait for every collective of the group started so far.
struct GroupWait {
  LayerGroup group = LayerGroup::tensor;
};

using WorkItem = std::variant<NamedKernel, GroupCollective, GroupWait>;

// What a rank holds all the time and no optimizer step touches: tables that the backward pass
// updates. Of the rank that holds most.
struct Resident {
  std::int64_t parameters = 0;
  Bytes weights, optimizer_state, buffers;
};

// Weights of a matrix product as one rank stores them: outputs x inputs. A convolution's inputs are
// those of one output.
struct WeightMatrix {
  std::int64_t rows = 1, columns = 1;
  std::int64_t count = 1;  // equal ones
  bool routed = false;     // of routed experts
  std::int64_t elements() const { return rows * columns * count; }
  friend bool operator==(const WeightMatrix&, const WeightMatrix&) = default;
};

struct LayerWork {
  std::string name;  // "embedding", "transformer layer", "logits and loss", "conv2_1"
  std::vector<WorkItem> forward;
  // Run again just before `backward`, for the layer as a whole. What recomputation of single
  // modules runs again stands inside `backward`, where it is needed. Names begin with "recompute ".
  std::vector<WorkItem> recompute;
  std::vector<WorkItem> backward;
  std::int64_t parameters = 0;  // held by one tensor-parallel rank; without routed experts
  // Those of the routed experts that one rank holds. Their gradients are summed over fewer ranks.
  std::int64_t expert_parameters = 0;
  // Those of both that are matrices, in the order of the forward pass; the others are biases and
  // scales.
  std::vector<WeightMatrix> matrices;
  // The part of `parameters` that is a copy of the embedding: tied output weights. Where embedding
  // and logits are on the same stage the copy does not exist; elsewhere its gradient is all-reduced
  // with the embedding's.
  std::int64_t tied_parameters = 0;

  Resident resident;  // not among the parameters above

  // Kept on one rank from forward to backward, recomputation taken into account.
  Activations kept;
  // What the loss keeps of the logits for its backward pass. A layer that has
  // some uses its workspace for their gradients.
  Bytes logits;
  // What recomputation brings back, the most at a time.
  Bytes restored;
  bool restored_for_weights = false;  // weight gradients need some of that
  // Live only while the layer's backward pass runs: gradients beside the kept activations.
  Bytes transient;
  Bytes activations() const { return kept.total(); }
  Bytes workspace() const { return restored + transient; }
  // Registered for communication by the layers of this kind together, as long as training lasts.
  Bytes shared_buffers;
  // The tensor handed to the next layer, whole (before any split over the group); 0 for the last.
  Bytes output;

  // The part of `output` that every later layer reads too (an encoder's output on its way through
  // the decoder), as one rank keeps it. A stage that begins after this layer holds it once, from
  // forward to backward; so do the activations of the layer that made it.
  Bytes passed_on;

  // Matrix multiplications and attention of one forward pass over all ranks that share the layer;
  // attention is counted in full, as Megatron-LM does. Model FLOPs of a step are three times their
  // sum.
  Flops forward_model_flops;
  Flops recompute_model_flops;  // of those, what recomputation executes again
};

}  // namespace trainyard::models
