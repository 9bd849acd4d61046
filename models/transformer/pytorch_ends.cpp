// The two ends of a transformer as PyTorch runs them: embedding, output layer and loss. What each
// reads and writes: transformer_pytorch.cpp.
#include "models/transformer/pytorch_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

void PytorchScript::loss() {
  const std::int64_t entries = s_.tokens * s_.vocabulary;
  const Bytes logits = entries * s_.element();
  const Bytes single = entries * size_of(Dtype::fp32);
  if (s_.kernels.of_loss() != LossKernels::eager)
    return pass("cross-entropy", MemoryOp::cross_entropy, 2 * logits, Bytes(0));
  if (logits != single) pass("logits to fp32", MemoryOp::elementwise, logits, single, entries);
  pass("cross-entropy", MemoryOp::cross_entropy, single, single);
}

void PytorchScript::loss_gradient() {
  const std::int64_t entries = s_.tokens * s_.vocabulary;
  const Bytes logits = entries * s_.element();
  const Bytes single = entries * size_of(Dtype::fp32);
  if (s_.kernels.of_loss() != LossKernels::eager)
    return pass("cross-entropy backward", MemoryOp::cross_entropy, logits, logits);
  pass("loss gradient zeros", MemoryOp::elementwise, Bytes(0), single);
  pass("cross-entropy backward", MemoryOp::cross_entropy, 2 * single, single);
  if (logits != single) pass("logits gradient from fp32", MemoryOp::elementwise, single, logits);
}

void pytorch_embedding_forward(WorkList& list, const TransformerSlice& s) {
  const Bytes states = s.tokens * s.hidden * s.wide_element();
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes shard = elements * s.wide_element();
  PytorchScript script(list, s);
  script.pass("embedding", MemoryOp::embedding, states, states);
  reduce_partial_sums(list, s, "embedding");
  if (s.kernels.fusion == Fusion::compiled) return;  // the rest is part of the first norm
  if (s.positional == Positional::learned)
    script.pass("positions", MemoryOp::elementwise, shard, shard);
  if (s.dropout)
    script.pass("embedding dropout", MemoryOp::dropout, shard, shard + Bytes(elements));
}

void pytorch_embedding_backward(WorkList& list, const TransformerSlice& s, bool tied) {
  const Bytes states = s.tokens * s.hidden * s.wide_element();
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes shard = elements * s.wide_element();
  const Bytes table = s.vocabulary * s.hidden * s.wide_element();
  PytorchScript script(list, s);
  if (s.dropout && s.kernels.fusion == Fusion::eager) {
    script.pass("embedding dropout backward", MemoryOp::dropout, shard + Bytes(elements), shard);
  }
  if (s.positional == Positional::learned)
    script.pass("positions backward", MemoryOp::elementwise, shard, Bytes(0));
  gather_tokens(list, s, "embedding gradient all-gather");
  script.pass("embedding gradient zeros", MemoryOp::elementwise, Bytes(0), table);
  script.pass("embedding backward", MemoryOp::embedding, 2 * states, states);
  if (tied) script.pass("tied gradient sum", MemoryOp::elementwise, 2 * table, table);
}

void pytorch_logits_forward(WorkList& list, const TransformerSlice& s) {
  PytorchScript script(list, s);
  script.norm("final norm", true);
  gather_tokens(list, s, "logits all-gather");
  script.linear("logits", s.vocabulary, s.hidden);
}

// Nothing but the norm reads the last layer's output, so no gradients meet there.
void pytorch_logits_backward(WorkList& list, const TransformerSlice& s) {
  PytorchScript script(list, s);
  const AutocastCopies copies(list, s);
  column_backward(list, s, "logits", s.vocabulary);
  copies.weight_gradient("logits", s.vocabulary * s.hidden, 0);
  copies.input_gradient("logits", s.hidden);
  script.norm_gradient("final norm", false);
}

Bytes pytorch_logits_kept(const TransformerSlice& s) {
  const Bytes element =
      s.kernels.of_loss() == LossKernels::eager ? size_of(Dtype::fp32) : s.element();
  return s.tokens * s.vocabulary * element;
}

// Eager: the gradients of the log-probabilities and of the fp32 logits. Compiled: of the logits.
Bytes pytorch_logits_transient(const TransformerSlice& s) {
  const Bytes kept = pytorch_logits_kept(s);
  return s.kernels.of_loss() == LossKernels::eager ? 2 * kept : kept;
}

}  // namespace trainyard::models
