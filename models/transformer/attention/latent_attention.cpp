// Projections of multi-head latent attention: queries, keys and values are expanded on each rank
// from two narrow compressed states. Training expands them in full; only inference keeps them
// compressed.
//
//   compress   h -> r_q and h -> r_kv + d_rope, every tensor-parallel rank alike, on its tokens
//   norms      of both compressed states
//   expand     r_q -> a (d_nope + d_rope) / t and r_kv -> a (d_nope + d_v) / t
//
// With sequence parallelism the compressed states, not the hidden ones, are gathered: r_q + r_kv +
// d_rope per token instead of h.
// Eager, the parts of queries and keys that are rotated and that are not are joined by copies, the
// one rotated key repeated for every head; backward its gradients are added up, and the gradients
// of what one product made are joined.
// Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1; Megatron-LM's MLASelfAttention; eager
// huggingface/transformers, models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention.
#include "models/transformer/attention/attention_script.h"
#include "models/transformer/pytorch_script.h"

namespace trainyard::models {
namespace {

Bytes compressed_bytes(const TransformerSlice& s, std::int64_t tokens) {
  return tokens * s.compressed_width() * s.element();
}

void norm(WorkList& list, const TransformerSlice& s, const std::string& name, std::int64_t width,
          bool backward) {
  PytorchScript script(list, s);
  if (s.kernels.norms_by_operators)
    return norm_by_operators(script, Norm::rms_norm, name, {s.shard_tokens, width, s.element()},
                             backward);
  const Bytes states = s.shard_tokens * width * s.element();
  script.pass(name, MemoryOp::rms_norm, backward ? 2 * states : states, states);
  if (backward && s.kernels.fusion != Fusion::by_hand && s.trained_heads)
    script.pass(name + " of its parameters", MemoryOp::rms_norm, 2 * states, Bytes(0));
}

}  // namespace

void latent_compression_forward(WorkList& list, const TransformerSlice& s) {
  const LatentAttention& l = s.latent;
  if (l.query_rank > 0) {
    list.kernel("query compression", Gemm{s.shard_tokens, l.query_rank, s.hidden, 1, s.gemm});
    norm(list, s, "query norm", l.query_rank, false);
  }
  list.kernel("key and value compression",
              Gemm{s.shard_tokens, l.key_value_rank + l.rope_size, s.hidden, 1, s.gemm});
  norm(list, s, "key and value norm", l.key_value_rank, false);
  if (s.sequence_parallel) {
    list.start("compressed states all-gather", CollectiveKind::all_gather,
               compressed_bytes(s, s.tokens));
    list.wait();
  }
}

void latent_expansion_forward(WorkList& list, const TransformerSlice& s) {
  const LatentAttention& l = s.latent;
  list.kernel("query expansion", Gemm{s.tokens, s.heads * l.query_key_size(),
                                      l.query_rank > 0 ? l.query_rank : s.hidden, 1, s.gemm});
  list.kernel("key and value expansion",
              Gemm{s.tokens, s.heads * (l.nope_size + l.value_size), l.key_value_rank, 1, s.gemm});
}

namespace {

void gradients(WorkList& list, const TransformerSlice& s, const std::string& name,
               std::int64_t tokens, std::int64_t columns, std::int64_t rows) {
  list.kernel(name + " input gradient", Gemm{tokens, rows, columns, 1, s.gemm});
  list.weight_gradient(name + " weight gradient", Gemm{columns, rows, tokens, 1, s.gemm});
}

}  // namespace

void latent_expansion_backward(WorkList& list, const TransformerSlice& s) {
  const LatentAttention& l = s.latent;
  const std::int64_t query_input = l.query_rank > 0 ? l.query_rank : s.hidden;
  gradients(list, s, "query expansion", s.tokens, s.heads * l.query_key_size(), query_input);
  gradients(list, s, "key and value expansion", s.tokens, s.heads * (l.nope_size + l.value_size),
            l.key_value_rank);
  if (s.tensor_parallel) {
    list.start("compressed states gradient",
               s.sequence_parallel ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
               compressed_bytes(s, s.tokens));
    list.wait();
  }
}

void latent_compression_backward(WorkList& list, const TransformerSlice& s) {
  const LatentAttention& l = s.latent;
  norm(list, s, "key and value norm backward", l.key_value_rank, true);
  gradients(list, s, "key and value compression", s.shard_tokens, l.key_value_rank + l.rope_size,
            s.hidden);
  if (l.query_rank > 0) {
    norm(list, s, "query norm backward", l.query_rank, true);
    gradients(list, s, "query compression", s.shard_tokens, l.query_rank, s.hidden);
  }
  const Bytes states = s.shard_tokens * s.hidden * s.element();
  if (eager(s))
    list.kernel("compressions gradient sum",
                MemoryBound{MemoryOp::elementwise, 2 * states, states});
}

namespace {

// The rotated part of each query, and of the one key that all heads share.
TransformerSlice rotated_part(const TransformerSlice& s) {
  TransformerSlice part = s;
  part.kv_heads = 1;
  part.head_size = s.latent.rope_size;
  return part;
}

void rotate(WorkList& list, const TransformerSlice& s, bool backward) {
  if (s.positional != Positional::rope) return;
  const TransformerSlice part = rotated_part(s);
  PytorchScript script(list, part);
  if (s.kernels.rotary_by_operators()) return rotary_by_operators(script, list, part, backward);
  const Bytes both = s.tokens * (s.heads + 1) * part.head_size * s.element();
  script.pass(backward ? "rope backward" : "rope", MemoryOp::rope, both, both);
}

}  // namespace

void pytorch_latent_heads(WorkList& list, const TransformerSlice& s) {
  rotate(list, s, false);
  const std::int64_t all = s.tokens * s.heads * s.latent.query_key_size();
  reordered(list, s, "query parts joined", all);
  reordered(list, s, "key parts joined", all);
}

void pytorch_latent_heads_backward(WorkList& list, const TransformerSlice& s) {
  const LatentAttention& l = s.latent;
  const Bytes shared = s.tokens * l.rope_size * s.element();
  PytorchScript(list, s).pass("rotated key gradient sum", MemoryOp::elementwise, s.heads * shared,
                              shared);
  rotate(list, s, true);
  reordered(list, s, "query gradient parts joined", s.tokens * s.heads * l.query_key_size());
  reordered(list, s, "key and value gradients joined",
            s.tokens * s.heads * (l.nope_size + l.value_size));
}

// Both compressed states before and after their norms.
std::int64_t latent_kept_per_token(const LatentAttention& l) {
  return 2 * (l.query_rank + l.key_value_rank) + l.rope_size;
}

std::int64_t latent_parameters(const Transformer& network, int tensor) {
  const LatentAttention& l = network.latent;
  const std::int64_t heads = network.heads / tensor;
  const std::int64_t query = l.query_rank > 0 ? (network.hidden + 1) * l.query_rank : 0;
  const std::int64_t query_input = l.query_rank > 0 ? l.query_rank : network.hidden;
  return query + query_input * heads * l.query_key_size() +
         network.hidden * (l.key_value_rank + l.rope_size) + l.key_value_rank +
         l.key_value_rank * heads * (l.nope_size + l.value_size) +
         heads * l.value_size * network.hidden;
}

// Products of every token with the weights, over all tensor-parallel ranks.
double latent_products(const Transformer& network) {
  const LatentAttention& l = network.latent;
  return static_cast<double>(latent_parameters(network, 1) - l.query_rank - l.key_value_rank);
}

}  // namespace trainyard::models
