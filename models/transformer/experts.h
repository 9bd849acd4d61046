// The feed-forward half of a layer whose tokens are routed to experts. Private to the room.
#pragma once

#include "models/layer/layer_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

// The pieces from the router to the weighted sum; shared experts are the caller's.
void add_experts(LayerScript& script, const TransformerSlice& slice);
// The same by PyTorch's operators.
void add_eager_experts(LayerScript& script, const TransformerSlice& slice);

// Rows that are weighted by the router for their sum, and kept for the weights' gradient.
std::int64_t weighted_rows(const TransformerSlice& slice);

// The shared experts: a feed-forward layer of another width.
TransformerSlice shared_experts(const TransformerSlice& slice);
// One column: its sigmoid scales what the shared experts add. Nothing without it.
void shared_gate(WorkList& list, const TransformerSlice& slice, bool backward);
// Backward, routed experts come first, then shared ones, then the sum of both gradients.
void order_mixture(LayerScript& script);

// Parameters on one rank: those of its experts, and those that all ranks have alike (router,
// shared experts).
std::int64_t routed_parameters(const Transformer& network, int expert, int expert_tensor);
std::int64_t unrouted_parameters(const Transformer& network, int tensor);

// Products of one token with the weights that it meets, over all ranks.
double experts_products(const Transformer& network);

}  // namespace trainyard::models
