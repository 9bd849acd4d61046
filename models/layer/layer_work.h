// What one layer of a network does for one micro-batch on one rank: kernels and the collectives of
// the groups that divide the layer, in the order in which the training script enqueues them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/layer/activations.h"
#include "models/layer/execution.h"
#include "models/layer/expert_routing.h"
#include "models/layer/kernel.h"
#include "sim/base/collective_kind.h"
#include "sim/base/units.h"

namespace trainyard::models {

struct NamedKernel {
  std::string name;  // "qkv", "attention scores", "fc1 weight gradient"
  Kernel kernel;
  bool weight_gradient = false;  // may be deferred by a zero-bubble schedule
  bool routed = false;           // its work follows the load of the rank's experts or tables
  bool repeated = false;         // recomputation: the forward pass has run it before
  std::uint32_t launches = 1;    // of the host, for products that are as many
  std::int64_t piece = 0;        // of a product in pieces, which share its weights
};

// The ranks that share a layer and talk inside it.
enum class LayerGroup : std::uint8_t { tensor, context, expert, expert_tensor, tables };
inline constexpr std::size_t kLayerGroups = 5;

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
  std::int64_t each() const { return rows * columns; }
  std::int64_t elements() const { return each() * count; }
  friend bool operator==(const WeightMatrix&, const WeightMatrix&) = default;
};

// Weights that no optimizer step changes; those of routed experts apart.
struct FrozenWeights {
  std::int64_t parameters = 0, expert_parameters = 0;
  // Of `parameters`: those of the layers' products, which narrow formats are for, and their bytes
  // if they are kept in blocks (nf4); and a copy of the embedding.
  std::int64_t matrices = 0, tied = 0;
  Bytes quantised_bytes;
};

struct LayerWork {
  std::string name;  // "embedding", "transformer layer", "logits and loss", "conv2_1"
  std::vector<WorkItem> forward;
  // Run again just before `backward`, for the layer as a whole. What recomputation of single
  // modules runs again stands inside `backward`, where it is needed. Both are `repeated` kernels.
  std::vector<WorkItem> recompute;
  std::vector<WorkItem> backward;
  // Trained and held by one tensor-parallel rank; without routed experts.
  std::int64_t parameters = 0;
  // Those of the routed experts that one rank holds. Their gradients are summed over fewer ranks.
  std::int64_t expert_parameters = 0;
  // Those of both that are matrices, in the order of the forward pass; the others are biases and
  // scales.
  std::vector<WeightMatrix> matrices;
  // An array of each shape among `matrices` is kept for autograd: Placeholders::kept.
  bool keeps_placeholders = false;
  // The part of `parameters` that is a copy of the embedding: tied output weights. Where embedding
  // and logits are on the same stage the copy does not exist; elsewhere its gradient is all-reduced
  // with the embedding's.
  std::int64_t tied_parameters = 0;
  FrozenWeights frozen;  // beside all these

  Resident resident;  // not among the parameters above

  // Kept on one rank from forward to backward, recomputation taken into account.
  Activations kept;
  // What the loss keeps of the logits for its backward pass. A layer that has
  // some uses its workspace for their gradients.
  Bytes logits;
  // What the loss reads: the network's outputs as its last product writes them; 0: not told.
  Bytes outputs;
  // What recomputation brings back, the most at a time.
  Bytes restored;
  bool restored_for_weights = false;  // weight gradients need some of that
  // Live only while the layer's backward pass runs: gradients beside the kept activations.
  Bytes transient;
  Bytes forward_transient;  // the same of the forward pass: weights as its products read them
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

  // Matrix multiplications and attention of one forward pass over all ranks that share the layer,
  // with the full square of attention, as Megatron-LM counts.
  Flops forward_model_flops;
  Flops recompute_model_flops;  // of those, what recomputation executes again
  // The parts of both that an attention mask leaves out.
  Flops forward_masked_flops, recompute_masked_flops;
  // Backward products that are not made: nobody needs the gradient of the network's input. Model
  // FLOPs are three times forward without the masked ones, less these. Frozen weights have no
  // gradients either.
  Flops skipped_flops;
  Flops skipped_masked_flops;  // of those, what the mask leaves out
};

}  // namespace trainyard::models
