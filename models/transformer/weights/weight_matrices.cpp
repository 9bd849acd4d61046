// Weights of a transformer as matrices of one rank: what compression by rank and optimizers that
// work on matrices need to know beside their number.
#include "models/transformer/transformer.h"

namespace trainyard::models {
namespace {

void attention(std::vector<WeightMatrix>& found, const TransformerSlice& s) {
  const LatentAttention& l = s.latent;
  if (!l.used()) {
    found.push_back({s.qkv_width, s.hidden});
  } else {
    if (l.query_rank > 0) found.push_back({l.query_rank, s.hidden});
    found.push_back({s.heads * l.query_key_size(), l.query_rank > 0 ? l.query_rank : s.hidden});
    found.push_back({l.key_value_rank + l.rope_size, s.hidden});
    found.push_back({s.heads * (l.nope_size + l.value_size), l.key_value_rank});
  }
  found.push_back({s.hidden, s.attention_width});
  if (s.memory_length == 0) return;
  found.push_back({s.attention_width, s.hidden});
  found.push_back({2 * s.kv_heads * s.head_size, s.hidden});
  found.push_back({s.hidden, s.attention_width});
}

}  // namespace

std::vector<WeightMatrix> layer_matrices(const TransformerSlice& s, bool mixture,
                                         const Finetune& how) {
  std::vector<WeightMatrix> found;
  if (s.content == Content::mamba) {
    found.push_back({s.mamba.projected(), s.hidden});
    found.push_back({s.hidden, s.mamba.inner()});
    return found;
  }
  if (s.content != Content::feed_forward && how.trains_whole(Part::attention)) attention(found, s);
  if (s.content == Content::attention || !how.trains_whole(Part::feed_forward)) return found;
  if (!mixture) {
    found.push_back({s.fc1_width, s.hidden});
    found.push_back({s.hidden, s.ffn});
    return found;
  }
  found.push_back({s.moe.experts, s.hidden});
  found.push_back({s.expert_fc1_width(), s.hidden, s.local_experts, true});
  found.push_back({s.hidden, s.expert_ffn, s.local_experts, true});
  if (s.shared_ffn == 0) return found;
  found.push_back({gated(s) ? 2 * s.shared_ffn : s.shared_ffn, s.hidden});
  found.push_back({s.hidden, s.shared_ffn});
  if (s.moe.shared_gate) found.push_back({1, s.hidden});
  return found;
}

// Learned positions are what is left beside the rows of the vocabulary.
std::vector<WeightMatrix> embedding_matrices(const TransformerSlice& s, std::int64_t parameters) {
  std::vector<WeightMatrix> found = {{s.vocabulary, s.hidden}};
  if (s.positional != Positional::learned) return found;
  const std::int64_t positions = parameters / s.hidden - s.vocabulary;
  if (positions > 0) found.push_back({positions, s.hidden});
  return found;
}

std::vector<WeightMatrix> logits_matrices(const TransformerSlice& s) {
  return {{s.vocabulary, s.hidden}};
}

}  // namespace trainyard::models
