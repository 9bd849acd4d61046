// Cross-attention of a decoder layer on one tensor-parallel rank. m tokens of the decoder, q of
// them outside the tensor-parallel regions; M tokens of the encoder's output; a heads of size hs,
// kv of them of keys and values; t tensor-parallel ranks; d bytes per element.
//
//   norm, query     m x a hs/t x h         columns; gathered with sequence parallelism
//   key and value   M x 2 kv hs/t x h      columns of the encoder's output, gathered likewise
//   attention       every decoder token sees the encoder's whole sequence; no mask halves it
//   proj            m x h x a hs/t         rows; summed over the group
//   dropout and residual addition
//
//   Kept: input and output of the norm 2 q h d, the mask q h, query and attention output
//   2 m a hs/t d, keys and values 2 M kv hs/t d. The encoder's output is one tensor for all layers:
//   whoever holds it counts it (LayerWork::passed_on).
//   Backward, its gradients of all layers are summed one after another.
//   In PyTorch norms, residual additions, copies and scores are those of transformer_pytorch.cpp.
//
// Source: Vaswani et al., Attention Is All You Need, 2017, section 3.2.3; division as in
// Megatron-LM's ParallelAttention with AttnType.cross_attn.
#include "models/transformer/attention/cross_attention.h"

#include <utility>

#include "models/transformer/attention/score_script.h"
#include "models/transformer/pytorch_script.h"

namespace trainyard::models {
namespace {

void memory_bound(WorkList& list, std::string name, MemoryOp op, Bytes read, Bytes written) {
  list.kernel(std::move(name), MemoryBound{op, read, written});
}

std::int64_t key_value_width(const TransformerSlice& s) {
  return 2 * s.kv_heads * s.head_size;
}

// The same rank with the encoder's tokens as its own.
TransformerSlice of_memory(const TransformerSlice& s) {
  TransformerSlice memory = s;
  memory.tokens = s.memory_tokens;
  memory.shard_tokens = s.memory_shard_tokens;
  return memory;
}

Kernel scores_gemm(const TransformerSlice& s) {
  return Gemm{s.sequence_length, s.memory_length, s.head_size, s.micro_batch * s.heads,
              s.of_heads()};
}

// Sums over the encoder's tokens: the attention's output, and the gradient of the queries.
Kernel over_memory_gemm(const TransformerSlice& s) {
  return Gemm{s.sequence_length, s.head_size, s.memory_length, s.micro_batch * s.heads,
              s.of_heads()};
}

// Sums over the decoder's tokens: the gradients of keys and values.
Kernel over_tokens_gemm(const TransformerSlice& s) {
  return Gemm{s.memory_length, s.head_size, s.sequence_length, s.micro_batch * s.heads,
              s.of_heads()};
}

Kernel fused(const TransformerSlice& s, bool backward) {
  return Attention{.batch = s.micro_batch,
                   .heads = s.heads,
                   .kv_heads = s.kv_heads,
                   .query_length = s.sequence_length,
                   .key_length = s.memory_length,
                   .head_size = s.head_size,
                   .causal = false,
                   .backward = backward,
                   .dtype = s.stored,
                   .kernel = s.kernels.attention,
                   .dropout = s.score_dropout};
}

// A mask of padding is added; T5's are not scaled, and nor are others' here.
Scores cross_scores(const TransformerSlice& s) {
  return {.attention = "cross-attention",
          .softmax = "cross softmax",
          .keys = s.memory_length,
          .scaled = false,
          .causal = false};
}

bool by_hand(const TransformerSlice& s) {
  return s.kernels.fusion == Fusion::by_hand;
}

Bytes context(const TransformerSlice& s) {
  return s.tokens * s.attention_width * s.element();
}

void bias_gradient(WorkList& list, const TransformerSlice& s, const char* name,
                   std::int64_t columns, bool biased) {
  if (!by_hand(s)) PytorchScript(list, s).bias_gradient(name, columns, biased);
}

void norm(WorkList& list, const TransformerSlice& s) {
  by_hand(s) ? norm_forward(list, s, "cross norm")
             : PytorchScript(list, s).norm("cross norm", true);
}

void norm_gradient(WorkList& list, const TransformerSlice& s) {
  by_hand(s) ? norm_backward(list, s, "cross norm backward")
             : PytorchScript(list, s).norm_gradient("cross norm", true);
}

void query_forward(WorkList& list, const TransformerSlice& s) {
  gather_inputs(list, s, "cross query all-gather");
  list.kernel("cross query", Gemm{s.tokens, s.attention_width, s.hidden, 1, s.gemm});
  added_bias(list, s, "cross query", s.biases.qkv, s.tokens * s.attention_width);
}

void query_backward(WorkList& list, const TransformerSlice& s) {
  column_backward(list, s, "cross query", s.attention_width);
  bias_gradient(list, s, "cross query", s.attention_width, s.biases.qkv);
}

void key_value_forward(WorkList& list, const TransformerSlice& s) {
  gather_inputs(list, of_memory(s), "encoder output all-gather");
  list.kernel("cross key and value",
              Gemm{s.memory_tokens, key_value_width(s), s.hidden, 1, s.gemm});
  added_bias(list, s, "cross key and value", s.biases.qkv, s.memory_tokens * key_value_width(s));
}

void key_value_backward(WorkList& list, const TransformerSlice& s) {
  column_backward(list, of_memory(s), "cross key and value", key_value_width(s));
  bias_gradient(list, of_memory(s), "cross key and value", key_value_width(s), s.biases.qkv);
  const Bytes states = s.memory_shard_tokens * s.hidden * s.element();
  memory_bound(list, "encoder output gradient sum", MemoryOp::elementwise, 2 * states, states);
}

// Heads of a sequence next to each other: by hand in one kernel, in PyTorch a copy each.
void heads_forward(WorkList& list, const TransformerSlice& s) {
  if (s.kernels.one_attention()) return;
  const Bytes query = context(s);
  const Bytes key_value = s.memory_tokens * key_value_width(s) * s.element();
  if (by_hand(s)) {
    memory_bound(list, "cross-attention transpose", MemoryOp::elementwise, query + key_value,
                 query + key_value);
    return;
  }
  reordered(list, s, "cross query copy", s.tokens * s.attention_width);
  // Grouped keys and values are repeated on the way.
  for (const char* name : {"cross key copy", "cross value copy"})
    reordered(list, s, name, s.memory_tokens * s.attention_width);
}

// Gradients of queries, keys and values back in the order of the projections.
void heads_backward(WorkList& list, const TransformerSlice& s) {
  const Bytes query = context(s);
  const Bytes key_value = s.memory_tokens * key_value_width(s) * s.element();
  if (!by_hand(s))
    memory_bound(list, "cross key and value gradient concatenation", MemoryOp::elementwise,
                 key_value, key_value);
  else if (!s.kernels.one_attention())
    memory_bound(list, "cross-attention transpose backward", MemoryOp::elementwise,
                 query + key_value, query + key_value);
}

// Scores, softmax, dropout and sum.
void core_forward(WorkList& list, const TransformerSlice& s) {
  if (s.kernels.one_attention()) return list.kernel("cross-attention", fused(s, false));
  list.kernel("cross-attention scores", scores_gemm(s));
  scores_to_weights(list, s, cross_scores(s));
  list.kernel("cross-attention context", over_memory_gemm(s));
}

void core_backward(WorkList& list, const TransformerSlice& s) {
  if (s.kernels.one_attention()) return list.kernel("cross-attention backward", fused(s, true));
  list.kernel("cross-attention probability gradient", scores_gemm(s));
  list.kernel("cross-attention value gradient", over_tokens_gemm(s));
  weights_to_scores_gradient(list, s, cross_scores(s));
  list.kernel("cross-attention query gradient", over_memory_gemm(s));
  list.kernel("cross-attention key gradient", over_tokens_gemm(s));
}

// The copy of the context is between attention and proj.
void context_copy(WorkList& list, const TransformerSlice& s, const char* name) {
  if (!by_hand(s) && !s.kernels.one_attention())
    reordered(list, s, name, s.tokens * s.attention_width);
}

void proj_forward(WorkList& list, const TransformerSlice& s) {
  context_copy(list, s, "cross context copy");
  list.kernel("cross proj", Gemm{s.tokens, s.hidden, s.attention_width, 1, s.gemm});
  reduce_partial_sums(list, s, "cross proj");
}

void proj_backward(WorkList& list, const TransformerSlice& s) {
  row_backward(list, s, "cross proj", s.attention_width);
  bias_gradient(list, s, "cross proj", s.hidden, s.biases.proj);
  context_copy(list, s, "cross context copy backward");
}

void residual(WorkList& list, const TransformerSlice& s) {
  by_hand(s) ? residual_forward(list, s, "cross residual")
             : PytorchScript(list, s).residual("cross residual");
}

void residual_gradient(WorkList& list, const TransformerSlice& s) {
  by_hand(s) ? residual_backward(list, s, "cross residual backward")
             : PytorchScript(list, s).residual_gradient("cross residual");
}

}  // namespace

void add_cross_attention(LayerScript& script, const TransformerSlice& slice) {
  using P = PieceKind;
  add_piece(script, P::cross_norm, slice, norm, norm_gradient);
  add_piece(script, P::cross_query, slice, query_forward, query_backward);
  add_piece(script, P::cross_key_value, slice, key_value_forward, key_value_backward);
  add_piece(script, P::cross_heads, slice, heads_forward, heads_backward);
  add_piece(script, P::cross_core, slice, core_forward, core_backward);
  add_piece(script, P::cross_proj, slice, proj_forward, proj_backward);
  add_piece(script, P::cross_residual, slice, residual, residual_gradient);
}

double cross_linear_flops(const TransformerSlice& s, int tensor) {
  if (s.memory_length == 0) return 0;
  const double own = 2.0 * static_cast<double>(s.tokens) * static_cast<double>(s.attention_width);
  const double memory =
      static_cast<double>(s.memory_tokens) * static_cast<double>(key_value_width(s));
  return 2.0 * tensor * static_cast<double>(s.hidden) * (own + memory);
}

// The bias of proj is added after the sum over the group, so every rank holds it whole.
std::int64_t cross_attention_parameters(const Transformer& network, int tensor) {
  const std::int64_t h = network.hidden;
  const std::int64_t columns =
      (network.heads / tensor + 2 * network.kv_heads_of_rank(tensor)) * network.head_size;
  const std::int64_t rows = network.heads / tensor * network.head_size;
  return columns * (h + (network.biases.qkv ? 1 : 0)) + rows * h + (network.biases.proj ? h : 0) +
         norm_parameters(network);
}

}  // namespace trainyard::models
