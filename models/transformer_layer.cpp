// One transformer layer: norm, attention, residual, norm, feed-forward, residual.
//
// Byte counts of memory-bound kernels are those of fused element-wise kernels as Megatron-LM runs
// them; biases are part of the matrix multiplications or of the kernel that follows.
#include "models/attention_script.h"
#include "models/experts.h"
#include "models/transformer.h"

namespace trainyard {
namespace {

void memory_bound(WorkList& list, std::string name, MemoryOp op, Bytes read, Bytes written) {
  list.kernel(std::move(name), MemoryBound{op, read, written});
}

// Grouped keys and values are repeated for every head, so the batch counts heads.
Kernel scores_gemm(const TransformerSlice& s) {
  const std::int64_t length = s.sequence_length;
  return Gemm{length, length, s.head_size, s.micro_batch * s.heads, s.stored};
}

Kernel context_gemm(const TransformerSlice& s) {
  const std::int64_t length = s.sequence_length;
  return Gemm{length, s.head_size, length, s.micro_batch * s.heads, s.stored};
}

std::int64_t score_elements(const TransformerSlice& s) {
  return s.tokens * s.heads * s.sequence_length;
}

void transpose(WorkList& list, const TransformerSlice& s, std::string name) {
  const Bytes qkv = s.tokens * s.qkv_width * s.element();
  memory_bound(list, std::move(name), MemoryOp::elementwise, qkv, qkv);
}

void rope(WorkList& list, const TransformerSlice& s, std::string name) {
  if (s.positional != Positional::rope) return;
  const Bytes rotated = s.tokens * (s.heads + s.kv_heads) * s.head_size * s.element();
  memory_bound(list, std::move(name), MemoryOp::rope, rotated, rotated);
}

// What selective recomputation runs again.
std::vector<WorkItem> attention_core(const TransformerSlice& s) {
  WorkList list;
  const Bytes scores = score_elements(s) * s.element();
  list.kernel("attention scores", scores_gemm(s));
  memory_bound(list, "softmax", MemoryOp::softmax, scores, scores);
  if (s.dropout) {
    memory_bound(list, "attention dropout", MemoryOp::dropout, scores,
                 scores + Bytes(score_elements(s)));
  }
  list.kernel("attention context", context_gemm(s));
  return list.take();
}

void attention_forward(WorkList& list, const TransformerSlice& s) {
  rope(list, s, "rope");
  if (s.fused_attention) {
    fused_attention_forward(list, s);
    return;
  }
  transpose(list, s, "attention transpose");
  list.append(attention_core(s));
}

void attention_backward(WorkList& list, const TransformerSlice& s, bool recompute_core) {
  if (s.fused_attention) {
    fused_attention_backward(list, s);
  } else {
    if (recompute_core) list.append(recomputed(attention_core(s)));
    const Bytes scores = score_elements(s) * s.element();
    list.kernel("attention probability gradient", scores_gemm(s));
    list.kernel("attention value gradient", context_gemm(s));
    if (s.dropout) {
      memory_bound(list, "attention dropout backward", MemoryOp::dropout,
                   scores + Bytes(score_elements(s)), scores);
    }
    memory_bound(list, "softmax backward", MemoryOp::softmax, 2 * scores, scores);
    list.kernel("attention query gradient", context_gemm(s));
    list.kernel("attention key gradient", context_gemm(s));
    transpose(list, s, "attention transpose backward");
  }
  rope(list, s, "rope backward");
}

void activation_forward(WorkList& list, const TransformerSlice& s) {
  memory_bound(list, "activation", MemoryOp::activation, s.tokens * s.fc1_width * s.element(),
               s.tokens * s.ffn * s.element());
}

void activation_backward(WorkList& list, const TransformerSlice& s) {
  const Bytes input = s.tokens * s.fc1_width * s.element();
  const Bytes gradient = s.tokens * s.ffn * s.element();
  memory_bound(list, "activation backward", MemoryOp::activation, gradient + input, input);
}

void residual_forward(WorkList& list, const TransformerSlice& s, std::string name) {
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes states = elements * s.element();
  const Bytes mask(s.dropout ? elements : 0);
  memory_bound(list, std::move(name), s.dropout ? MemoryOp::dropout : MemoryOp::elementwise,
               2 * states, states + mask);
}

void residual_backward(WorkList& list, const TransformerSlice& s, std::string name) {
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes states = elements * s.element();
  const Bytes mask(s.dropout ? elements : 0);
  memory_bound(list, std::move(name), s.dropout ? MemoryOp::dropout : MemoryOp::elementwise,
               states + mask, states);
}

// proj and fc2 are split by rows: their gradient arrives whole, or is gathered first with sequence
// parallelism; their input's gradient stays on the rank.
void row_backward(WorkList& list, const TransformerSlice& s, const std::string& name,
                  std::int64_t rows) {
  gathered_product(list, s, name + " gradient all-gather", name + " input gradient",
                   Gemm{s.tokens, rows, s.hidden, 1, s.gemm});
  list.weight_gradient(name + " weight gradient", Gemm{s.hidden, rows, s.tokens, 1, s.gemm});
}

// A feed-forward layer of this slice, from the normalised hidden states.
void feed_forward_forward(WorkList& list, const TransformerSlice& s) {
  gathered_product(list, s, "fc1 all-gather", "fc1",
                   Gemm{s.tokens, s.fc1_width, s.hidden, 1, s.gemm});
  activation_forward(list, s);
  reduced_product(list, s, "fc2", Gemm{s.tokens, s.hidden, s.ffn, 1, s.gemm});
}

void feed_forward_backward(WorkList& list, const TransformerSlice& s) {
  row_backward(list, s, "fc2", s.ffn);
  activation_backward(list, s);
  column_backward(list, s, "fc1", s.fc1_width);
}

// The shared experts: a feed-forward layer of another width.
TransformerSlice shared_experts(const TransformerSlice& s) {
  TransformerSlice shared = s;
  shared.ffn = s.shared_ffn;
  shared.fc1_width = s.fc1_width == s.ffn ? s.shared_ffn : 2 * s.shared_ffn;
  return shared;
}

Bytes shard_states(const TransformerSlice& s) {
  return s.shard_tokens * s.hidden * s.element();
}

void mixture_forward(WorkList& list, const TransformerSlice& s) {
  experts_forward(list, s);
  if (s.shared_ffn == 0) return;
  feed_forward_forward(list, shared_experts(s));
  memory_bound(list, "shared and routed sum", MemoryOp::elementwise, 2 * shard_states(s),
               shard_states(s));
}

void mixture_backward(WorkList& list, const TransformerSlice& s) {
  experts_backward(list, s);
  if (s.shared_ffn == 0) return;
  feed_forward_backward(list, shared_experts(s));
  memory_bound(list, "shared and routed gradient sum", MemoryOp::elementwise, 2 * shard_states(s),
               shard_states(s));
}

void projections_forward(WorkList& list, const TransformerSlice& s) {
  if (s.latent.used()) return latent_projections_forward(list, s);
  gathered_product(list, s, "qkv all-gather", "qkv",
                   Gemm{s.tokens, s.qkv_width, s.hidden, 1, s.gemm});
}

void projections_backward(WorkList& list, const TransformerSlice& s) {
  if (s.latent.used()) return latent_projections_backward(list, s);
  column_backward(list, s, "qkv", s.qkv_width);
}

std::vector<WorkItem> forward_items(const TransformerSlice& s, bool mixture) {
  WorkList list;
  norm_forward(list, s, "norm 1");
  projections_forward(list, s);
  attention_forward(list, s);
  reduced_product(list, s, "proj", Gemm{s.tokens, s.hidden, s.attention_width, 1, s.gemm});
  residual_forward(list, s, "residual 1");

  norm_forward(list, s, "norm 2");
  mixture ? mixture_forward(list, s) : feed_forward_forward(list, s);
  residual_forward(list, s, "residual 2");
  return list.take();
}

std::vector<WorkItem> backward_items(const TransformerSlice& s, bool mixture, bool recompute_core) {
  WorkList list;
  residual_backward(list, s, "residual 2 backward");
  mixture ? mixture_backward(list, s) : feed_forward_backward(list, s);
  norm_backward(list, s, "norm 2 backward");

  residual_backward(list, s, "residual 1 backward");
  row_backward(list, s, "proj", s.attention_width);
  attention_backward(list, s, recompute_core);
  projections_backward(list, s);
  norm_backward(list, s, "norm 1 backward");
  return list.take();
}

// The scores of all heads and tokens, twice: Q K^T and P V, no part left out for the causal mask.
double attention_flops(const TransformerSlice& s, int tensor) {
  return 4.0 * static_cast<double>(s.context * s.tokens * s.sequence_length) *
         static_cast<double>(tensor * s.heads * s.head_size);
}

double linear_flops(const TransformerSlice& s, const Transformer& network, int tensor,
                    bool mixture) {
  const double hidden = static_cast<double>(s.hidden);
  const double attention =
      s.latent.used() ? latent_products(network)
                      : static_cast<double>(tensor * (s.qkv_width + s.attention_width)) * hidden;
  const double feed_forward = mixture
                                  ? experts_products(network)
                                  : static_cast<double>(tensor * (s.fc1_width + s.ffn)) * hidden;
  return 2.0 * static_cast<double>(s.context * s.tokens) * (attention + feed_forward);
}

}  // namespace

LayerWork transformer_layer(const Transformer& network, const Execution& execution, bool mixture) {
  const TransformerSlice s = slice(network, execution);
  const bool selective = execution.recompute == Recompute::selective && !s.fused_attention;
  const LayerActivations kept = layer_activations(s, mixture);
  const double attention = attention_flops(s, execution.tensor);

  LayerWork work;
  work.name = mixture ? "layer of experts" : "transformer layer";
  const bool by_hand = s.fusion == Fusion::by_hand;
  work.forward = by_hand ? forward_items(s, mixture) : pytorch_layer_forward(s);
  work.backward =
      by_hand ? backward_items(s, mixture, selective) : pytorch_layer_backward(s, selective);
  work.parameters = layer_parameters(network, execution.tensor, mixture);
  if (mixture) {
    work.expert_parameters = routed_parameters(network, execution.expert, execution.expert_tensor);
  }
  work.matrices = layer_matrices(s, mixture);
  work.output = s.hidden_states();
  work.shared_buffers = chunked_buffers(s);
  work.forward_model_flops = Flops(linear_flops(s, network, execution.tensor, mixture) + attention);
  work.activations = kept.rest + kept.scores;
  if (selective) {
    work.activations = kept.rest;
    work.workspace = kept.scores;
    work.recompute_model_flops = Flops(attention);
  }
  if (execution.recompute == Recompute::full) {
    // The layer's input, whole on every rank unless sequence parallelism has split it already.
    work.activations = s.shard_tokens * s.hidden * s.element();
    work.workspace = kept.rest + kept.scores - work.activations;
    work.recompute = recomputed(work.forward);
    work.recompute_model_flops = work.forward_model_flops;
  }
  if (!by_hand) work.workspace = work.workspace + pytorch_layer_transient(s);
  return work;
}

}  // namespace trainyard
