// The bias of relative positions: a table of `buckets` rows and a column per head, looked up once
// per stack and pass for all pairs of tokens. Every layer of the stack adds it to its scores.
// Source: Raffel et al., T5, JMLR 2020, section 2.1 ("we share the position embedding parameters
// across all layers").
#include "models/transformer/transformer.h"

namespace trainyard::models {

Bytes position_bias_bytes(const TransformerSlice& s) {
  if (s.positional != Positional::relative) return Bytes(0);
  return s.heads * s.sequence_length * s.sequence_length * s.element();
}

void position_bias_forward(WorkList& list, const TransformerSlice& s) {
  const Bytes bias = position_bias_bytes(s);
  if (bias.count() == 0) return;
  list.kernel("position bias", MemoryBound{MemoryOp::embedding, bias, bias});
}

// Scatter-add: reads the gradient and the rows it is added to.
void position_bias_backward(WorkList& list, const TransformerSlice& s) {
  const Bytes bias = position_bias_bytes(s);
  if (bias.count() == 0) return;
  list.kernel("position bias backward", MemoryBound{MemoryOp::embedding, 2 * bias, bias});
}

std::int64_t position_bias_parameters(const Transformer& network, int tensor) {
  if (network.positional != Positional::relative) return 0;
  return network.buckets * network.heads / tensor;
}

}  // namespace trainyard::models
