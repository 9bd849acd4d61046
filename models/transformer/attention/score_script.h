// Unfused attention between its two products: scores become weights. Private to the room.
#pragma once

#include <string>

#include "models/transformer/transformer.h"

namespace trainyard::models {

// The scores of one attention on a rank.
struct Scores {
  std::string attention;  // how names of its kernels begin
  std::string softmax;
  std::int64_t keys = 0;  // that each query sees
  Bytes bias{};           // of relative positions, added to them
  bool scaled = true;     // by a kernel, where an eager script has one
  bool causal = true;     // their mask has a gradient
};

// Those of a layer's own tokens.
Scores self_scores(const TransformerSlice& slice);

// Scale, mask or bias, softmax and dropout, as KernelChoice::softmax and the execution have them.
void scores_to_weights(WorkList& list, const TransformerSlice& slice, const Scores& scores);
void weights_to_scores_gradient(WorkList& list, const TransformerSlice& slice,
                                const Scores& scores);

// What the backward pass keeps of as many scores: the softmax's output, in fp32 beside the copy
// that the product reads where it is of fp32 copies, and with dropout a mask and what is left.
Bytes kept_of_scores(const TransformerSlice& slice, std::int64_t scores);

// Gradients of scores that live while an operator of theirs runs backward; 0 where Megatron-LM's
// kernel leaves the gradient in the weights' place, or attention is fused.
Bytes score_transient(const TransformerSlice& slice);

}  // namespace trainyard::models
