// A Mamba-2 layer as a script: projection, convolution and scan, projection. Private to the room.
#pragma once

#include "models/layer/layer_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

// The three pieces between the norm and the residual addition.
void add_mamba(LayerScript& script, const TransformerSlice& slice);

// What the scan's backward pass makes beside what the layer keeps, the most at a time.
Bytes mamba_transient(const TransformerSlice& slice);

// Of one of `tensor` ranks, without the norm before it.
std::int64_t mamba_parameters(const Transformer& network, int tensor);

// Of one token over all ranks: the products of both projections, and the scan as Megatron-LM counts
// it, 7 I N. Source: megatron/training/training.py, mamba_layer_flops.
double mamba_products(const Transformer& network);
double mamba_scan_flops(const Transformer& network);

}  // namespace trainyard::models
