// What a transformer's layer does where its weights do not all train: products without gradients of
// weights, adapters beside them, weights that each product brings to 16 bits first. Private to the
// room.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layer/finetune.h"
#include "models/layer/layer_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

// Rewrites a layer's pieces, tensors included. `recompute`: the layer runs again whole, so that its
// input stays. Requires: how.all() is false.
void freeze(LayerScript& script, const TransformerSlice& slice, const Finetune& how,
            const LayerForm& form, bool recompute);

// The largest matrix of a layer as its product reads it; nothing if they are kept so.
Bytes widened_weights(const TransformerSlice& slice, const Finetune& how);

// A layer's adapters on one rank, in the order of the forward pass: A, then B, of each.
std::vector<WeightMatrix> adapter_matrices(const TransformerSlice& slice, const Finetune& how);

// A matrix that an adapter of one rank stands beside; 0 x 0: the layer has none.
struct AdaptedMatrix {
  std::int64_t outputs = 0, inputs = 0;
};
AdaptedMatrix adapted_matrix(Target target, const TransformerSlice& slice);

// Gradients that nobody needs, of the two ends: of weights, and of what the end reads.
std::vector<WorkItem> without_weight_gradients(const std::vector<WorkItem>& backward,
                                               bool gathers_input);
std::vector<WorkItem> without_input_gradients(const std::vector<WorkItem>& backward);

// FLOPs of the products among these items.
Flops product_flops(const std::vector<WorkItem>& items);

}  // namespace trainyard::models
