// The feed-forward half of a layer whose tokens are routed to experts. Private to the room.
#pragma once

#include "models/transformer.h"

namespace trainyard {

// Norm and residual addition excluded, shared experts included.
void experts_forward(WorkList& list, const TransformerSlice& slice);
void experts_backward(WorkList& list, const TransformerSlice& slice);

// Kept from forward to backward on one rank, the input of the feed-forward half excluded.
Bytes experts_activations(const TransformerSlice& slice);

// On one rank: those of its experts, and what all ranks have alike (router, shared experts).
std::int64_t routed_parameters(const Transformer& network, int expert, int expert_tensor);
std::int64_t unrouted_parameters(const Transformer& network, int tensor);

// Products of one token with the weights that it meets, over all ranks.
double experts_products(const Transformer& network);

}  // namespace trainyard
