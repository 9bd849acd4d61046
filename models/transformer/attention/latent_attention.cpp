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
// Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1; Megatron-LM's MLASelfAttention.
#include "models/transformer/attention/attention_script.h"

namespace trainyard::models {
namespace {

Bytes compressed_bytes(const TransformerSlice& s, std::int64_t tokens) {
  return tokens * s.compressed_width() * s.element();
}

void norm(WorkList& list, const TransformerSlice& s, std::string name, std::int64_t width,
          bool backward) {
  const Bytes states = s.shard_tokens * width * s.element();
  list.kernel(std::move(name),
              MemoryBound{MemoryOp::rms_norm, backward ? 2 * states : states, states});
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
  if (l.query_rank == 0) return;
  norm(list, s, "query norm backward", l.query_rank, true);
  gradients(list, s, "query compression", s.shard_tokens, l.query_rank, s.hidden);
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
