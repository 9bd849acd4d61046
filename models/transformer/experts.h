// The feed-forward half of a layer whose tokens are routed to experts. Private to the room.
#pragma once

#include "models/layer/layer_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

// The pieces from the router to the weighted sum; shared experts are the caller's.
void add_experts(LayerScript& script, const TransformerSlice& slice);

// Parameters on one rank: those of its experts, and those that all ranks have alike (router,
// shared experts).
std::int64_t routed_parameters(const Transformer& network, int expert, int expert_tensor);
std::int64_t unrouted_parameters(const Transformer& network, int tensor);

// Products of one token with the weights that it meets, over all ranks.
double experts_products(const Transformer& network);

}  // namespace trainyard::models
