// Fused attention as a script: kernels, and the exchange of keys and values where a
// context-parallel group divides the sequence. Private to the room.
#pragma once

#include "models/transformer.h"

namespace trainyard {

void fused_attention_forward(WorkList& list, const TransformerSlice& slice);
void fused_attention_backward(WorkList& list, const TransformerSlice& slice);

}  // namespace trainyard
