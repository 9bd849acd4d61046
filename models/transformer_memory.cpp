// Parameters and activations of a transformer on one tensor-parallel rank.
//
//   GPT, 16 bits, unfused attention with dropout, per layer (exactly; tested as integers):
//     t only         s b h (10 + 24/t + 5 a s / (h t))
//     t and sequence s b h (34 + 5 a s / h) / t
//     selective      the same without 5 a s / h;  full: 2 s b h
//   Parameters of GPT with biases and learned positions, without the 2 h of the final norm:
//     12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h))
//
// Source: Korthikanti et al. 2022, equations 1 to 6; Narayanan et al., Efficient Large-Scale
// Language Model Training on GPU Clusters Using Megatron-LM, SC 2021, equation 2.
#include <cmath>

#include "models/attention_script.h"
#include "models/experts.h"
#include "models/transformer.h"

namespace trainyard {
namespace {

std::int64_t ceil_divide(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

// Tensors of f/t columns: what the activation function needs backward and the input of fc2. The
// gradient of ReLU needs only the sign of its output, which fc2 keeps anyway.
std::int64_t kept_ffn_tensors(FeedForward feed_forward) {
  switch (feed_forward) {
    case FeedForward::relu: return 1;
    case FeedForward::gelu: return 2;
    case FeedForward::swiglu:
    case FeedForward::geglu: return 3;
  }
  return 0;
}

}  // namespace

TransformerSlice slice(const Transformer& network, const Execution& execution) {
  const std::int64_t t = execution.tensor;
  TransformerSlice result;
  result.sequence_length = execution.sequence_length;
  result.micro_batch = execution.micro_batch;
  result.context = execution.context;
  result.context_method = execution.context_method;
  result.tokens = execution.micro_batch * execution.sequence_length / execution.context;
  result.tensor_parallel = t > 1;
  result.sequence_parallel = t > 1 && execution.sequence_parallel;
  result.shard_tokens = result.sequence_parallel ? result.tokens / t : result.tokens;
  result.overlap = execution.tensor_overlap != TensorOverlap::none;
  result.tensor = t;
  cut_products(result, execution);
  result.hidden = network.hidden;
  result.heads = network.heads / t;
  result.kv_heads = network.kv_heads / t;
  result.head_size = network.head_size;
  result.qkv_width = (result.heads + 2 * result.kv_heads) * network.head_size;
  result.attention_width = result.heads * network.head_size;
  result.ffn = network.ffn_hidden / t;
  result.fc1_width = network.gated() ? 2 * result.ffn : result.ffn;
  if (network.latent.used()) {
    const LatentAttention& l = network.latent;
    result.latent = l;
    result.kv_heads = result.heads;
    result.head_size = (l.query_key_size() + l.value_size) / 2;
    result.qkv_width = result.heads * (2 * l.query_key_size() + l.value_size);
    result.attention_width = result.heads * l.value_size;
  }
  result.moe = network.moe;
  if (network.moe.experts > 0) {
    const std::int64_t even = result.shard_tokens * network.moe.top_k;
    // Whole rows: a factor of 1.25 is taken as the next whole number of them.
    result.routed_rows =
        execution.capacity > 0
            ? static_cast<std::int64_t>(std::ceil(execution.capacity * static_cast<double>(even)))
            : even;
    result.local_experts = network.moe.experts / execution.expert;
    result.expert_tensor = execution.expert_tensor;
    result.expert_ffn = network.moe.ffn_hidden / execution.expert_tensor;
    result.shared_ffn = network.moe.shared_ffn_hidden / t;
    result.expert_parallel = execution.expert > 1;
  }
  result.vocabulary = ceil_divide(network.vocabulary, t);
  result.fused_attention = execution.fused_attention;
  result.feed_forward = network.feed_forward;
  result.positional = network.positional;
  result.norm = network.norm;
  result.dropout = network.dropout;
  result.biases = network.biases;
  result.fusion = execution.fusion;
  result.gemm = execution.compute;
  result.stored = execution.compute == Dtype::fp8 ? Dtype::bf16 : execution.compute;
  return result;
}

// Term by term, d bytes per element, m tokens, q of them outside the tensor-parallel regions:
//   inputs of both norms                    2 q h d
//   inputs of qkv and fc1 (norm outputs)    2 q h d
//   two dropout masks                       2 q h         with dropout, a byte each
//   query, key, value                       m (a + 2 kv) hs / t d
//   attention output = input of proj        m a hs / t d
//   activation inputs and input of fc2      m f / t d x (GELU 2, ReLU 1, SwiGLU and GeGLU 3)
//   unfused: softmax output                 m s a / t d
//            its mask and dropped-out copy  m s a / t (1 + d)   with dropout
//   fused:   softmax statistics             m a / t 4
// Statistics of the norms (8 bytes per token) are left out, as in the source.
LayerActivations layer_activations(const TransformerSlice& s, bool mixture) {
  const std::int64_t outside = s.shard_tokens * s.hidden;
  // Eager gates keep the activated half beside both halves and their product; fused ones compute
  // it again.
  const bool eager_gate = s.fusion == Fusion::eager && s.fc1_width != s.ffn;
  const std::int64_t ffn_tensors = kept_ffn_tensors(s.feed_forward) + (eager_gate ? 1 : 0);
  const std::int64_t dense = mixture ? s.shared_ffn : s.ffn;
  std::int64_t inside = s.tokens * (s.qkv_width + s.attention_width + ffn_tensors * dense);
  if (s.latent.used()) inside += s.shard_tokens * latent_kept_per_token(s.latent);
  LayerActivations result;
  result.rest = (4 * outside + inside) * s.element();
  if (mixture) result.rest = result.rest + experts_activations(s);
  if (s.dropout) result.rest = result.rest + Bytes(2 * outside);

  const std::int64_t rows = s.tokens * s.heads;
  if (s.fused_attention) {
    result.rest = result.rest + rows * size_of(Dtype::fp32);
    return result;
  }
  const std::int64_t scores = rows * s.sequence_length;
  result.scores = scores * s.element();
  if (s.dropout) result.scores = result.scores + scores * (s.element() + Bytes(1));
  return result;
}

std::int64_t norm_parameters(const Transformer& network) {
  return network.norm == Norm::layer_norm ? 2 * network.hidden : network.hidden;
}

// Biases of proj and fc2 are added after the sum over the group, so every rank holds them whole.
std::int64_t layer_parameters(const Transformer& network, int tensor, bool mixture) {
  const std::int64_t h = network.hidden;
  const std::int64_t heads = (network.heads + 2 * network.kv_heads) / tensor;
  const std::int64_t ffn = network.ffn_hidden / tensor;
  const std::int64_t bias = network.biases ? 1 : 0;
  const std::int64_t qkv = heads * network.head_size * (h + bias);
  const std::int64_t proj = network.heads / tensor * network.head_size * h + bias * h;
  const std::int64_t attention =
      network.latent.used() ? latent_parameters(network, tensor) : qkv + proj;
  const std::int64_t fc1 = (network.gated() ? 2 : 1) * ffn * (h + bias);
  const std::int64_t fc2 = ffn * h + bias * h;
  const std::int64_t feed_forward = mixture ? unrouted_parameters(network, tensor) : fc1 + fc2;
  return attention + feed_forward + 2 * norm_parameters(network);
}

std::int64_t output_matrix_parameters(const Transformer& network, int tensor) {
  return ceil_divide(network.vocabulary, tensor) * network.hidden;
}

std::int64_t embedding_parameters(const Transformer& network, int tensor,
                                  std::int64_t sequence_length) {
  const std::int64_t rows = network.max_positions > 0 ? network.max_positions : sequence_length;
  const std::int64_t positions =
      network.positional == Positional::learned ? rows * network.hidden : 0;
  return output_matrix_parameters(network, tensor) + positions;
}

std::int64_t transformer_parameters(const Transformer& network, std::int64_t sequence_length) {
  const std::int64_t output = network.tied_embeddings ? 0 : output_matrix_parameters(network, 1);
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < network.layers; ++layer) {
    const bool mixture = network.is_mixture(layer);
    layers +=
        layer_parameters(network, 1, mixture) + (mixture ? routed_parameters(network, 1, 1) : 0);
  }
  return embedding_parameters(network, 1, sequence_length) + layers + norm_parameters(network) +
         output;
}

}  // namespace trainyard
