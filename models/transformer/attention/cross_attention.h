// Cross-attention: the third block of a decoder layer that has an encoder beside it. Private to the
// room.
#pragma once

#include "models/transformer/transformer.h"

namespace trainyard::models {

// Appends its pieces; what they keep is save_tensors'. Requires: slice.memory_length > 0.
void add_cross_attention(LayerScript& script, const TransformerSlice& slice);

// The projections, over all ranks that share the layer; 0 without cross-attention.
double cross_linear_flops(const TransformerSlice& slice, int tensor);

// Parameters on one of `tensor` ranks, with the norm before it.
std::int64_t cross_attention_parameters(const Transformer& network, int tensor);

}  // namespace trainyard::models
