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
//
// Source: Vaswani et al., Attention Is All You Need, 2017, section 3.2.3; division as in
// Megatron-LM's ParallelAttention with AttnType.cross_attn.
#include "models/cross_attention.h"

#include <utility>

namespace trainyard {
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
  return Gemm{s.sequence_length, s.memory_length, s.head_size, s.micro_batch * s.heads, s.stored};
}

// Sums over the encoder's tokens: the attention's output, and the gradient of the queries.
Kernel over_memory_gemm(const TransformerSlice& s) {
  return Gemm{s.sequence_length, s.head_size, s.memory_length, s.micro_batch * s.heads, s.stored};
}

// Sums over the decoder's tokens: the gradients of keys and values.
Kernel over_tokens_gemm(const TransformerSlice& s) {
  return Gemm{s.memory_length, s.head_size, s.sequence_length, s.micro_batch * s.heads, s.stored};
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
                   .dtype = s.stored};
}

std::int64_t score_elements(const TransformerSlice& s) {
  return s.tokens * s.heads * s.memory_length;
}

void transpose(WorkList& list, const TransformerSlice& s, std::string name) {
  const Bytes moved =
      (s.tokens * s.attention_width + s.memory_tokens * key_value_width(s)) * s.element();
  memory_bound(list, std::move(name), MemoryOp::elementwise, moved, moved);
}

void query_forward(WorkList& list, const TransformerSlice& s) {
  gather_tokens(list, s, "cross query all-gather");
  list.kernel("cross query", Gemm{s.tokens, s.attention_width, s.hidden, 1, s.gemm});
}

void query_backward(WorkList& list, const TransformerSlice& s) {
  column_backward(list, s, "cross query", s.attention_width);
}

void key_value_forward(WorkList& list, const TransformerSlice& s) {
  gather_tokens(list, of_memory(s), "encoder output all-gather");
  list.kernel("cross key and value",
              Gemm{s.memory_tokens, key_value_width(s), s.hidden, 1, s.gemm});
}

void key_value_backward(WorkList& list, const TransformerSlice& s) {
  column_backward(list, of_memory(s), "cross key and value", key_value_width(s));
  const Bytes states = s.memory_shard_tokens * s.hidden * s.element();
  memory_bound(list, "encoder output gradient sum", MemoryOp::elementwise, 2 * states, states);
}

void heads_forward(WorkList& list, const TransformerSlice& s) {
  if (!s.fused_attention) transpose(list, s, "cross-attention transpose");
}

void heads_backward(WorkList& list, const TransformerSlice& s) {
  if (!s.fused_attention) transpose(list, s, "cross-attention transpose backward");
}

void core_forward(WorkList& list, const TransformerSlice& s) {
  if (s.fused_attention) return list.kernel("cross-attention", fused(s, false));
  const Bytes scores = score_elements(s) * s.element();
  list.kernel("cross-attention scores", scores_gemm(s));
  memory_bound(list, "cross softmax", MemoryOp::softmax, scores, scores);
  if (s.dropout) {
    memory_bound(list, "cross-attention dropout", MemoryOp::dropout, scores,
                 scores + Bytes(score_elements(s)));
  }
  list.kernel("cross-attention context", over_memory_gemm(s));
}

void core_backward(WorkList& list, const TransformerSlice& s) {
  if (s.fused_attention) return list.kernel("cross-attention backward", fused(s, true));
  const Bytes scores = score_elements(s) * s.element();
  list.kernel("cross-attention probability gradient", scores_gemm(s));
  list.kernel("cross-attention value gradient", over_tokens_gemm(s));
  if (s.dropout) {
    memory_bound(list, "cross-attention dropout backward", MemoryOp::dropout,
                 scores + Bytes(score_elements(s)), scores);
  }
  memory_bound(list, "cross softmax backward", MemoryOp::softmax, 2 * scores, scores);
  list.kernel("cross-attention query gradient", over_memory_gemm(s));
  list.kernel("cross-attention key gradient", over_tokens_gemm(s));
}

void proj_forward(WorkList& list, const TransformerSlice& s) {
  list.kernel("cross proj", Gemm{s.tokens, s.hidden, s.attention_width, 1, s.gemm});
  reduce_partial_sums(list, s, "cross proj");
}

void proj_backward(WorkList& list, const TransformerSlice& s) {
  row_backward(list, s, "cross proj", s.attention_width);
}

}  // namespace

void add_cross_attention(LayerScript& script, const TransformerSlice& slice) {
  using P = PieceKind;
  const auto named = [](auto work, const char* name) {
    return [=](WorkList& list, const TransformerSlice& s) { work(list, s, name); };
  };
  add_piece(script, P::cross_norm, slice, named(norm_forward, "cross norm"),
            named(norm_backward, "cross norm backward"));
  add_piece(script, P::cross_query, slice, query_forward, query_backward);
  add_piece(script, P::cross_key_value, slice, key_value_forward, key_value_backward);
  add_piece(script, P::cross_heads, slice, heads_forward, heads_backward);
  add_piece(script, P::cross_core, slice, core_forward, core_backward);
  add_piece(script, P::cross_proj, slice, proj_forward, proj_backward);
  add_piece(script, P::cross_residual, slice, named(residual_forward, "cross residual"),
            named(residual_backward, "cross residual backward"));
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
  const std::int64_t bias = network.biases ? 1 : 0;
  const std::int64_t columns = (network.heads + 2 * network.kv_heads) / tensor * network.head_size;
  const std::int64_t rows = network.heads / tensor * network.head_size;
  return columns * (h + bias) + rows * h + bias * h + norm_parameters(network);
}

}  // namespace trainyard
