// Attention as a script: projections of latent attention, fused kernels, and the exchange of keys
// and values where a context-parallel group divides the sequence. Private to the room.
#pragma once

#include "models/transformer/transformer.h"

namespace trainyard::models {

// Queries, keys and values of latent attention, from the normalised hidden states: to the narrow
// states, and from them.
void latent_compression_forward(WorkList& list, const TransformerSlice& slice);
void latent_compression_backward(WorkList& list, const TransformerSlice& slice);
void latent_expansion_forward(WorkList& list, const TransformerSlice& slice);
void latent_expansion_backward(WorkList& list, const TransformerSlice& slice);
// What PyTorch's operators do between the expansion and attention.
void pytorch_latent_heads(WorkList& list, const TransformerSlice& slice);
void pytorch_latent_heads_backward(WorkList& list, const TransformerSlice& slice);
std::int64_t latent_kept_per_token(const LatentAttention& latent);
std::int64_t latent_parameters(const Transformer& network, int tensor);
double latent_products(const Transformer& network);

// Attention of a whole sequence with the heads of one tensor-parallel rank, as one fused kernel.
Attention whole_attention(const TransformerSlice& slice, bool backward);

void fused_attention_forward(WorkList& list, const TransformerSlice& slice);
void fused_attention_backward(WorkList& list, const TransformerSlice& slice);

}  // namespace trainyard::models
