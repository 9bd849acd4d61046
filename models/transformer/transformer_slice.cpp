// What a network and the way it is executed leave to one rank of a tensor-parallel group.
#include <cmath>

#include "models/transformer/transformer.h"

namespace trainyard::models {
namespace {

// Rows of fp8 carry an fp32 scale for each 128 elements. Source: DeepSeek-V3, 2024, section 3.3.2.
Bytes row_of(std::int64_t elements, Dtype dtype) {
  constexpr std::int64_t kElementsPerScale = 128;
  const Bytes values = elements * size_of(dtype);
  return dtype == Dtype::fp8 ? values + divide_up(elements, kElementsPerScale) * Bytes(4) : values;
}

// Keys that a token sees in the middle: half of its document, or of its chunk; of a window of w on
// n tokens w - w^2 / 2n. Of a document and a window that which shows fewer is taken alone.
void describe_documents(std::int64_t document, TransformerSlice& slice) {
  if (document == 0 || document >= slice.sequence_length) return;
  const auto window = static_cast<double>(slice.window);
  const double sliding =
      window - window * window / (2 * static_cast<double>(slice.sequence_length));
  const double seen = slice.chunked ? window / 2 : sliding;
  if (slice.window > 0 && static_cast<double>(document) / 2 >= seen) return;
  slice.window = document;
  slice.chunked = true;
}

void describe_exchange(const Transformer& network, const Execution& execution,
                       TransformerSlice& slice) {
  slice.dispatched_row =
      row_of(network.hidden, execution.experts.dispatch_dtype.value_or(slice.stored));
  slice.arriving_rows = slice.expert_rows();
  if (!execution.experts.hierarchical_dispatch || !slice.expert_parallel) return;
  const Experts& moe = network.moe;
  slice.routing = {moe.experts, moe.top_k, moe.groups, moe.top_groups, network.hidden};
  const double each =
      parts_visited(slice.routing, execution.experts.ranks) * execution.experts.tensor;
  slice.arriving_rows =
      static_cast<std::int64_t>(std::ceil(static_cast<double>(slice.shard_tokens) * each));
}

}  // namespace

TransformerSlice slice(const Transformer& network, const Execution& execution,
                       const LayerForm& form) {
  const std::int64_t t = execution.tensor;
  TransformerSlice result;
  result.sequence_length = execution.micro_batch.sequence_length;
  result.micro_batch = execution.micro_batch.size;
  result.context = execution.context;
  result.context_parallel = execution.context_parallel;
  result.tokens =
      execution.micro_batch.size * execution.micro_batch.sequence_length / execution.context;
  result.tensor_parallel = t > 1;
  result.sequence_parallel = t > 1 && execution.tensor_parallel.sequence;
  result.shard_tokens = result.sequence_parallel ? result.tokens / t : result.tokens;
  result.keeps_gathered =
      result.sequence_parallel && execution.tensor_parallel.keep_gathered_inputs;
  result.gathers_per_projection = execution.tensor_parallel.gather_per_projection;
  result.gathers_logits = t > 1 && execution.tensor_parallel.gather_logits;
  result.overlap = execution.tensor_parallel.overlap != TensorOverlap::none;
  result.tensor = t;
  cut_products(result, execution);
  result.memory_length = execution.memory_length;
  result.memory_tokens = execution.micro_batch.size * execution.memory_length;
  result.memory_shard_tokens =
      result.sequence_parallel ? result.memory_tokens / t : result.memory_tokens;
  result.hidden = network.hidden;
  result.heads = network.heads / t;
  result.kv_heads = network.kv_heads_of_rank(execution.tensor);
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
    result.routed_rows = execution.experts.capacity > 0
                             ? static_cast<std::int64_t>(std::ceil(execution.experts.capacity *
                                                                   static_cast<double>(even)))
                             : even;
    result.rows_vary = execution.experts.capacity == 0 && execution.experts.ranks > 1;
    result.local_experts = network.moe.experts / execution.experts.ranks;
    result.expert_tensor = execution.experts.tensor;
    result.expert_ffn = network.moe.ffn_hidden / execution.experts.tensor;
    result.shared_ffn = network.moe.shared_ffn_hidden / t;
    result.expert_parallel = execution.experts.ranks > 1;
  }
  result.vocabulary = divide_up(network.vocabulary, t);
  result.feed_forward = network.feed_forward;
  result.positional = network.positional;
  result.norm = network.norm;
  result.head_norm = network.head_norm;
  result.causal = network.causal;
  result.post_norm = network.post_norm;
  result.block_norms = network.block_norms;
  result.blocks = network.blocks;
  // Who does not train drops nothing.
  result.dropout = network.dropout && execution.trains;
  result.score_dropout = network.drops_scores() && execution.trains;
  result.biases = result.trained_biases = network.biases;
  const Finetune& how = execution.finetune;
  result.trained_norms = !form.frozen && how.trains_whole(Part::norms);
  result.trained_heads = !form.frozen && how.trains_whole(Part::attention);
  if (!result.trained_heads) result.trained_biases.qkv = result.trained_biases.proj = false;
  if (form.frozen || !how.trains_whole(Part::feed_forward))
    result.trained_biases.feed_forward = false;
  result.kernels = execution.kernels;
  result.gemm = execution.compute;
  result.stored = execution.compute == Dtype::fp8 ? Dtype::bf16 : execution.compute;
  result.autocast = execution.autocast;
  result.stream = how.widens_stream() || execution.autocast ? Dtype::fp32 : result.stored;
  result.inputs = execution.fp8_inputs ? Dtype::fp8 : result.stored;
  result.kept_gates = execution.fp8_gates && network.gated() ? Dtype::fp8 : result.stored;
  result.casts = execution.fp8;
  result.casts.frozen =
      !result.trained_heads && (form.frozen || !how.trains_whole(Part::feed_forward));
  if (form.windowed && network.window.size < result.sequence_length) {
    result.window = network.window.size;
    result.chunked = network.window.chunked;
  }
  describe_documents(execution.micro_batch.document_length, result);
  if (network.window.size > 0 && !form.windowed && !network.window.global_positions)
    result.positional = Positional::none;
  // Llama 4 normalises where it rotates.
  if (result.positional == Positional::none && result.head_norm == HeadNorm::unweighted)
    result.head_norm = HeadNorm::none;
  describe_exchange(network, execution, result);
  result.content = form.content;
  result.mamba = network.mamba;
  result.mamba.heads /= t;
  result.mamba.groups /= t;
  return result;
}

}  // namespace trainyard::models
