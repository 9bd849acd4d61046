// Parameters of a transformer on one tensor-parallel rank.
//
//   GPT with biases and learned positions, without the 2 h of the final norm:
//     12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h))
//
// Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM, SC 2021, equation 2.
#include "models/transformer/attention/attention_script.h"
#include "models/transformer/experts.h"
#include "models/transformer/mamba/mamba_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

std::int64_t norm_parameters(const Transformer& network) {
  return network.norm == Norm::layer_norm ? 2 * network.hidden : network.hidden;
}

std::int64_t norms_of_layer(const Transformer& network) {
  if (network.blocks == Blocks::parallel_one_norm) return 1;
  return network.block_norms == BlockNorms::around ? 4 : 2;
}

// Weights of the norms of queries and keys; those of single heads are whole on every rank.
std::int64_t head_norm_parameters(const Transformer& network, int tensor) {
  switch (network.head_norm) {
    case HeadNorm::none:
    case HeadNorm::unweighted: return 0;
    case HeadNorm::per_head: return 2 * network.head_size;
    case HeadNorm::whole:
      return (network.heads / tensor + network.kv_heads_of_rank(tensor)) * network.head_size;
  }
  return 0;
}

// Biases of proj and fc2 are added after the sum over the group, so every rank holds them whole.
LayerParameters parts_of_layer(const Transformer& network, int tensor, const LayerForm& form) {
  if (form.content == Content::mamba)
    return {mamba_parameters(network, tensor), 0, norm_parameters(network)};
  const std::int64_t h = network.hidden;
  const std::int64_t heads = network.heads / tensor + 2 * network.kv_heads_of_rank(tensor);
  const std::int64_t ffn = network.ffn_hidden / tensor;
  const Biases& biases = network.biases;
  const std::int64_t qkv = heads * network.head_size * (h + (biases.qkv ? 1 : 0));
  const std::int64_t proj = network.heads / tensor * network.head_size * h + (biases.proj ? h : 0);
  const std::int64_t attention = network.latent.used()
                                     ? latent_parameters(network, tensor)
                                     : qkv + proj + head_norm_parameters(network, tensor) +
                                           (network.attention_sinks ? network.heads / tensor : 0);
  const std::int64_t fc1 = (network.gated() ? 2 : 1) * ffn * (h + (biases.feed_forward ? 1 : 0));
  const std::int64_t fc2 = ffn * h + (biases.feed_forward ? h : 0);
  const std::int64_t feed_forward = form.mixture ? unrouted_parameters(network, tensor) : fc1 + fc2;
  if (form.content == Content::attention) return {attention, 0, norm_parameters(network)};
  if (form.content == Content::feed_forward) return {0, feed_forward, norm_parameters(network)};
  return {attention, feed_forward, norms_of_layer(network) * norm_parameters(network)};
}

std::int64_t layer_parameters(const Transformer& network, int tensor, const LayerForm& form) {
  return parts_of_layer(network, tensor, form).all();
}

std::int64_t output_matrix_parameters(const Transformer& network, int tensor) {
  return divide_up(network.vocabulary, tensor) * network.hidden;
}

std::int64_t embedding_parameters(const Transformer& network, int tensor,
                                  std::int64_t sequence_length) {
  const std::int64_t rows = network.max_positions > 0 ? network.max_positions : sequence_length;
  const std::int64_t positions =
      network.positional == Positional::learned ? rows * network.hidden : 0;
  const std::int64_t norm = network.embedding_norm ? norm_parameters(network) : 0;
  return output_matrix_parameters(network, tensor) + positions + norm +
         position_bias_parameters(network, tensor);
}

std::int64_t transformer_parameters(const Transformer& network, std::int64_t sequence_length) {
  const std::int64_t output = network.tied_embeddings ? 0 : output_matrix_parameters(network, 1);
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < network.layers; ++layer) {
    const LayerForm form = network.form_of(layer);
    layers +=
        layer_parameters(network, 1, form) + (form.mixture ? routed_parameters(network, 1, 1) : 0);
  }
  return embedding_parameters(network, 1, sequence_length) + layers + norm_parameters(network) +
         output;
}

}  // namespace trainyard::models
