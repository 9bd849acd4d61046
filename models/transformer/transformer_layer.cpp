// One transformer layer: norm, attention, residual, norm, feed-forward, residual.
//
// Byte counts of memory-bound kernels are those of fused element-wise kernels as Megatron-LM runs
// them; biases are part of the product (qkv's) or of the kernel that follows, which hands the
// gradient of its whole result to the bias: autograd sums it over the rows. Source: Megatron-LM,
// megatron/core/fusions/fused_bias_gelu.py and fused_bias_dropout.py.
#include <string>
#include <utility>

#include "models/layer/layer_script.h"
#include "models/transformer/attention/attention_script.h"
#include "models/transformer/attention/cross_attention.h"
#include "models/transformer/attention/score_script.h"
#include "models/transformer/experts.h"
#include "models/transformer/finetune/adapters.h"
#include "models/transformer/mamba/mamba_script.h"
#include "models/transformer/pytorch_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {
namespace {

void memory_bound(WorkList& list, std::string name, MemoryOp op, Bytes read, Bytes written) {
  list.kernel(std::move(name), MemoryBound{op, read, written});
}

// Grouped keys and values are repeated for every head, so the batch counts heads.
Kernel scores_gemm(const TransformerSlice& s) {
  const std::int64_t length = s.sequence_length;
  return Gemm{length, length, s.head_size, s.micro_batch * s.heads, s.of_heads()};
}

Kernel context_gemm(const TransformerSlice& s) {
  const std::int64_t length = s.sequence_length;
  return Gemm{length, s.head_size, length, s.micro_batch * s.heads, s.of_heads()};
}

void transpose(WorkList& list, const TransformerSlice& s, std::string name) {
  const Bytes qkv = s.tokens * s.qkv_width * s.element();
  memory_bound(list, std::move(name), MemoryOp::elementwise, qkv, qkv);
}

void rope(WorkList& list, const TransformerSlice& s, bool backward) {
  if (s.positional != Positional::rope) return;
  if (s.kernels.rotary_by_operators() && !s.latent.used()) {
    PytorchScript script(list, s);
    return rotary_by_operators(script, list, s, backward);
  }
  const Bytes rotated = s.tokens * (s.heads + s.kv_heads) * s.head_size * s.element();
  memory_bound(list, backward ? "rope backward" : "rope", MemoryOp::rope, rotated, rotated);
}

void attention_core(WorkList& list, const TransformerSlice& s) {
  list.kernel("attention scores", scores_gemm(s));
  scores_to_weights(list, s, self_scores(s));
  list.kernel("attention context", context_gemm(s));
}

void head_norms(WorkList& list, const TransformerSlice& s, bool backward) {
  if (s.head_norm == HeadNorm::none) return;
  const MemoryOp op = s.norm == Norm::layer_norm ? MemoryOp::layer_norm : MemoryOp::rms_norm;
  const char* suffix = backward ? " backward" : "";
  for (const auto& [name, heads] : {std::pair{"query norm", s.heads}, {"key norm", s.kv_heads}}) {
    const Bytes states = s.tokens * heads * s.head_size * s.element();
    memory_bound(list, std::string(name) + suffix, op, (backward ? 2 : 1) * states, states);
  }
}

// FlashAttention wants sequences that follow one another and reads no product that holds queries,
// keys and values of a head side by side; cuDNN reads that, unless a rotary embedding has moved
// queries and keys elsewhere. Elements of a token that are copied before attention. Source:
// Transformer Engine, attention/dot_product_attention/backends.py (_PrepareQKVForFA) and utils.py
// (get_qkv_layout); Megatron-Core, transformer/attention.py: a reshape copies grouped queries.
std::int64_t copied_inputs(const TransformerSlice& s) {
  const bool flash = s.kernels.attention != AttentionKernel::cudnn;
  if (s.positional != Positional::rope) return flash ? s.qkv_width : 0;
  const std::int64_t queries = s.heads > s.kv_heads && s.kv_heads > 1 ? s.heads : 0;
  const std::int64_t turned = flash && s.micro_batch > 1 ? s.heads + s.kv_heads : 0;
  return (queries + turned + s.kv_heads) * s.head_size;
}

// Gradients of tensors that lie apart are joined for the product's backward pass.
std::int64_t joined_gradients(const TransformerSlice& s) {
  const bool apart =
      s.positional == Positional::rope || s.kernels.attention != AttentionKernel::cudnn;
  return apart ? s.qkv_width : 0;
}

void copy_heads(WorkList& list, const TransformerSlice& s, std::string name,
                std::int64_t elements) {
  if (!s.kernels.fused_attention() || s.latent.used() || elements == 0) return;
  const Bytes moved = s.tokens * elements * s.element();
  memory_bound(list, std::move(name), MemoryOp::elementwise, moved, moved);
}

void heads_forward(WorkList& list, const TransformerSlice& s) {
  head_norms(list, s, false);
  rope(list, s, false);
  if (!s.kernels.one_attention()) transpose(list, s, "attention transpose");
  copy_heads(list, s, "attention inputs", copied_inputs(s));
}

void heads_backward(WorkList& list, const TransformerSlice& s) {
  if (!s.kernels.one_attention()) transpose(list, s, "attention transpose backward");
  copy_heads(list, s, "attention input gradients", joined_gradients(s));
  rope(list, s, true);
  head_norms(list, s, true);
}

void core_forward(WorkList& list, const TransformerSlice& s) {
  s.kernels.one_attention() ? fused_attention_forward(list, s) : attention_core(list, s);
}

void core_backward(WorkList& list, const TransformerSlice& s) {
  if (s.kernels.one_attention()) return fused_attention_backward(list, s);
  list.kernel("attention probability gradient", scores_gemm(s));
  list.kernel("attention value gradient", context_gemm(s));
  weights_to_scores_gradient(list, s, self_scores(s));
  list.kernel("attention query gradient", context_gemm(s));
  list.kernel("attention key gradient", context_gemm(s));
}

void activation_forward(WorkList& list, const TransformerSlice& s) {
  const Bytes input = s.tokens * s.fc1_width * s.element();
  memory_bound(list, "activation", s.activation_op(), input, s.tokens * s.ffn * s.element());
  if (s.casts_gates())
    memory_bound(list, "gates kept", MemoryOp::elementwise, input,
                 s.kept_gate_bytes(s.tokens, s.fc1_width));
}

void activation_backward(WorkList& list, const TransformerSlice& s) {
  const Bytes input = s.tokens * s.fc1_width * s.element();
  const Bytes gradient = s.tokens * s.ffn * s.element();
  if (s.casts_gates())
    memory_bound(list, "gates restored", MemoryOp::elementwise,
                 s.kept_gate_bytes(s.tokens, s.fc1_width), input);
  memory_bound(list, "activation backward", s.activation_op(), gradient + input, input);
}

void bias_sum(WorkList& list, const TransformerSlice& s, const char* name, bool biased,
              std::int64_t elements) {
  if (!biased) return;
  memory_bound(list, name, MemoryOp::column_sum, elements * s.element(), Bytes(0));
}

// A feed-forward layer of this slice, from the normalised hidden states.
void fc1_forward(WorkList& list, const TransformerSlice& s) {
  bool first = true;
  for (const Columns& layer : column_layers(s, PieceKind::fc1, "fc1")) {
    column_forward(list, s, "fc1", layer, first);
    first = false;
  }
}

void fc1_backward(WorkList& list, const TransformerSlice& s) {
  bias_sum(list, s, "fc1 bias gradient", s.trained_biases.feed_forward, s.tokens * s.fc1_width);
  column_backward(list, s, "fc1", column_layers(s, PieceKind::fc1, "fc1"));
}

void fc2_forward(WorkList& list, const TransformerSlice& s) {
  reduced_product(list, s, "fc2", Gemm{s.tokens, s.hidden, s.ffn, 1, s.gemm});
}

void fc2_backward(WorkList& list, const TransformerSlice& s) {
  bias_sum(list, s, "fc2 bias gradient", s.trained_biases.feed_forward, s.shard_tokens * s.hidden);
  row_backward(list, s, "fc2", s.ffn);
}

void proj_forward(WorkList& list, const TransformerSlice& s) {
  reduced_product(list, s, "proj", Gemm{s.tokens, s.hidden, s.attention_width, 1, s.gemm});
}

void proj_backward(WorkList& list, const TransformerSlice& s) {
  bias_sum(list, s, "proj bias gradient", s.trained_biases.proj, s.shard_tokens * s.hidden);
  row_backward(list, s, "proj", s.attention_width);
}

void qkv_forward(WorkList& list, const TransformerSlice& s) {
  if (s.latent.used()) return latent_expansion_forward(list, s);
  gathered_product(list, s, "qkv all-gather", "qkv",
                   Gemm{s.tokens, s.qkv_width, s.hidden, 1, s.gemm});
}

void qkv_backward(WorkList& list, const TransformerSlice& s) {
  if (s.latent.used()) return latent_expansion_backward(list, s);
  column_backward(list, s, "qkv", s.qkv_width);
}

void shared_sum(WorkList& list, const TransformerSlice& s, std::string name) {
  const Bytes states = s.shard_tokens * s.hidden * s.element();
  memory_bound(list, std::move(name), MemoryOp::elementwise, 2 * states, states);
}

void add_dense(LayerScript& script, const TransformerSlice& s, bool shared) {
  using P = PieceKind;
  add_piece(script, shared ? P::shared_fc1 : P::fc1, s, fc1_forward, fc1_backward);
  add_piece(script, shared ? P::shared_activation : P::activation, s, activation_forward,
            activation_backward);
  add_piece(script, shared ? P::shared_fc2 : P::fc2, s, fc2_forward, fc2_backward);
}

void add_mixture(LayerScript& script, const TransformerSlice& s) {
  add_experts(script, s);
  if (s.shared_ffn == 0) return;
  add_dense(script, shared_experts(s), true);
  add_piece(
      script, PieceKind::shared_sum, s,
      [](WorkList& list, const TransformerSlice& own) {
        shared_gate(list, own, false);
        shared_sum(list, own, "shared and routed sum");
      },
      [](WorkList& list, const TransformerSlice& own) {
        shared_sum(list, own, "shared and routed gradient sum");
        shared_gate(list, own, true);
      });
}

auto named(void (*work)(WorkList&, const TransformerSlice&, std::string), const char* name) {
  return [=](WorkList& list, const TransformerSlice& own) { work(list, own, name); };
}

void add_norm(LayerScript& script, const TransformerSlice& s, PieceKind kind,
              const std::string& name) {
  const auto forward = [&](WorkList& list, const TransformerSlice& own) {
    norm_forward(list, own, name);
  };
  const auto backward = [&](WorkList& list, const TransformerSlice& own) {
    norm_backward(list, own, name + " backward");
  };
  add_piece(script, kind, s, forward, backward);
}

void add_attention(LayerScript& script, const TransformerSlice& s) {
  using P = PieceKind;
  if (s.latent.used())
    add_piece(script, P::compress, s, latent_compression_forward, latent_compression_backward);
  add_piece(script, P::qkv, s, qkv_forward, qkv_backward);
  add_piece(script, P::heads, s, heads_forward, heads_backward);
  add_piece(script, P::core, s, core_forward, core_backward);
}

void branch_sum(WorkList& list, const TransformerSlice& s) {
  const Bytes states = s.hidden_states();
  memory_bound(list, "branch sum", MemoryOp::elementwise, 2 * states, states);
  reduce_partial_sums(list, s, "branches");
}

// Attention and feed-forward read one stream. Their partial sums are added before the group
// reduces them, once; backward, one gather of the sum's gradient serves both, and the gradient of
// the input of each is reduced by itself. Source: GPT-NeoX, ParallelTransformerLayer with
// gpt_j_residual.
void add_parallel_blocks(LayerScript& script, const TransformerSlice& s) {
  using P = PieceKind;
  const auto product = [](const char* name, std::int64_t rows) {
    return [=](WorkList& list, const TransformerSlice& own) {
      list.kernel(name, Gemm{own.tokens, own.hidden, rows, 1, own.gemm});
    };
  };
  const auto gradients = [](const std::string& name, std::int64_t rows) {
    return [=](WorkList& list, const TransformerSlice& own) {
      list.kernel(name + " input gradient", Gemm{own.tokens, rows, own.hidden, 1, own.gemm});
      list.weight_gradient(name + " weight gradient",
                           Gemm{own.hidden, rows, own.tokens, 1, own.gemm});
    };
  };
  add_norm(script, s, P::norm_1, "norm 1");
  add_attention(script, s);
  add_piece(script, P::proj, s, product("proj", s.attention_width),
            gradients("proj", s.attention_width));
  if (s.blocks == Blocks::parallel) add_norm(script, s, P::norm_2, "norm 2");
  add_piece(script, P::fc1, s, fc1_forward, fc1_backward);
  add_piece(script, P::activation, s, activation_forward, activation_backward);
  add_piece(script, P::fc2, s, product("fc2", s.ffn), gradients("fc2", s.ffn));
  add_piece(script, P::branch_sum, s, branch_sum, [](WorkList& list, const TransformerSlice& own) {
    gather_tokens(list, own, "branches gradient all-gather");
  });
  add_piece(script, P::residual_2, s, named(residual_forward, "residual"),
            named(residual_backward, "residual backward"));
}

// A layer of a hybrid stack.
void add_one_part(LayerScript& script, const TransformerSlice& s, bool mixture) {
  using P = PieceKind;
  const bool feeds = s.content == Content::feed_forward;
  add_norm(script, s, feeds ? P::norm_2 : P::norm_1, "norm");
  if (feeds) {
    mixture ? add_mixture(script, s) : add_dense(script, s, false);
  } else if (s.content == Content::mamba) {
    add_mamba(script, s);
  } else {
    add_attention(script, s);
    add_piece(script, P::proj, s, proj_forward, proj_backward);
  }
  add_piece(script, feeds ? P::residual_2 : P::residual_1, s, named(residual_forward, "residual"),
            named(residual_backward, "residual backward"));
  if (mixture) order_mixture(script);
}

void add_by_hand(LayerScript& script, const TransformerSlice& s, bool mixture) {
  using P = PieceKind;
  if (s.content != Content::whole) return add_one_part(script, s, mixture);
  if (s.parallel()) return add_parallel_blocks(script, s);
  const bool before = !s.post_norm && s.block_norms != BlockNorms::after;
  const bool behind = s.block_norms != BlockNorms::before;
  if (before) add_norm(script, s, P::norm_1, "norm 1");
  add_attention(script, s);
  add_piece(script, P::proj, s, proj_forward, proj_backward);
  if (behind) add_norm(script, s, P::branch_norm_1, "attention output norm");
  add_piece(script, P::residual_1, s, named(residual_forward, "residual 1"),
            named(residual_backward, "residual 1 backward"));
  if (s.post_norm) add_norm(script, s, P::norm_1, "norm 1");
  if (s.memory_length > 0) add_cross_attention(script, s);
  if (before) add_norm(script, s, P::norm_2, "norm 2");
  mixture ? add_mixture(script, s) : add_dense(script, s, false);
  if (behind) add_norm(script, s, P::branch_norm_2, "feed-forward output norm");
  add_piece(script, P::residual_2, s, named(residual_forward, "residual 2"),
            named(residual_backward, "residual 2 backward"));
  if (s.post_norm) add_norm(script, s, P::norm_2, "norm 2");
  if (mixture) order_mixture(script);
}

bool attends(const TransformerSlice& s) {
  return s.content == Content::whole || s.content == Content::attention;
}

// The scores of all heads and tokens, twice: Q K^T and P V, no part left out for a mask.
Flops attention_flops(const TransformerSlice& s, int tensor, std::int64_t keys) {
  return Flops(4.0 * static_cast<double>(s.context * s.tokens * keys) *
               static_cast<double>(tensor * s.heads * s.head_size));
}

double linear_flops(const TransformerSlice& s, const Transformer& network, int tensor,
                    bool mixture) {
  const double hidden = static_cast<double>(s.hidden);
  const auto tokens = static_cast<double>(s.context * s.tokens);
  if (s.content == Content::mamba)
    return tokens * (2.0 * mamba_products(network) + mamba_scan_flops(network));
  const double attention =
      !attends(s)       ? 0
      : s.latent.used() ? latent_products(network)
                        : static_cast<double>(tensor * (s.qkv_width + s.attention_width)) * hidden;
  const double feed_forward = s.content == Content::attention ? 0
                              : mixture
                                  ? experts_products(network)
                                  : static_cast<double>(tensor * (s.fc1_width + s.ffn)) * hidden;
  return 2.0 * tokens * (attention + feed_forward) + cross_linear_flops(s, tensor);
}

}  // namespace

LayerScript transformer_script(const Transformer& network, const Execution& execution,
                               const LayerForm& form) {
  const TransformerSlice s = slice(network, execution, form);
  LayerScript script;
  script.ranks = static_cast<double>(execution.tensor) * execution.context;
  script.eager = s.kernels.fusion == Fusion::eager;
  if (attends(s)) {
    script.attention = attention_flops(s, execution.tensor, s.sequence_length);
    script.masked = static_cast<double>(execution.tensor) * masked_flops(whole_attention(s, false));
  }
  script.cross_attention = attention_flops(s, execution.tensor, s.memory_length);
  script.model_flops = Flops(linear_flops(s, network, execution.tensor, form.mixture)) +
                       script.attention + script.cross_attention;
  s.kernels.fusion == Fusion::by_hand ? add_by_hand(script, s, form.mixture)
                                      : add_pytorch(script, s, form.mixture);
  save_tensors(script, s);
  if (!execution.finetune.all() && form.reach != Reach::below)
    freeze(script, s, execution.finetune, form, execution.recompute.form == Recompute::full);
  return script;
}

namespace {

// Of the layer's products: routers and the gate of shared experts stay in 16 bits.
void count_frozen_matrices(FrozenWeights& frozen, const TransformerSlice& s, bool mixture,
                           const Finetune& how) {
  Finetune rest;  // whose parts are those that `how` freezes
  rest.kind = Finetune::Kind::frozen;
  for (const Part part : {Part::attention, Part::feed_forward})
    if (!how.trains_whole(part)) rest.trains.add(part);
  for (const WeightMatrix& matrix : layer_matrices(s, mixture, rest)) {
    if (matrix.routed) continue;
    frozen.matrices += matrix.elements();
    if (how.quantises())
      frozen.quantised_bytes =
          frozen.quantised_bytes + nf4_bytes(matrix.elements(), how.double_quantised);
  }
  if (!mixture || how.trains_whole(Part::feed_forward)) return;
  const bool gated = s.shared_ffn > 0 && s.moe.shared_gate;
  frozen.matrices -= (s.moe.experts + (gated ? 1 : 0)) * s.hidden;
}

// Parameters and matrices of a layer, the frozen ones apart.
void divide_weights(LayerWork& work, const TransformerSlice& s, const Transformer& network,
                    const Execution& execution, const LayerForm& form) {
  const LayerParameters parts = parts_of_layer(network, execution.tensor, form);
  const std::int64_t experts =
      form.mixture ? routed_parameters(network, execution.experts.ranks, execution.experts.tensor)
                   : 0;
  Finetune how = execution.finetune;
  if (form.frozen) {
    how.kind = Finetune::Kind::frozen;
    how.trains = {};
  }
  for (const auto& [part, count] : {std::pair{Part::attention, parts.attention},
                                    {Part::feed_forward, parts.feed_forward},
                                    {Part::norms, parts.norms}})
    (how.trains_whole(part) ? work.parameters : work.frozen.parameters) += count;
  (how.trains_whole(Part::feed_forward) ? work.expert_parameters : work.frozen.expert_parameters) =
      experts;
  work.matrices = layer_matrices(s, form.mixture, how);
  for (const WeightMatrix& adapter : adapter_matrices(s, how)) {
    work.parameters += adapter.elements();
    work.matrices.push_back(adapter);
  }
  count_frozen_matrices(work.frozen, s, form.mixture, how);
}

// Of those that are dropped the backward pass's first one counts: with each product after it less
// of what the layer keeps is left. Routers, no linear layers of Transformer Engine, are too small
// to matter.
void leave_placeholders(LayerWork& work, const TransformerSlice& s) {
  work.keeps_placeholders = s.kernels.placeholders == Placeholders::kept;
  if (s.kernels.placeholders != Placeholders::dropped || work.matrices.empty()) return;
  work.transient = work.transient + work.matrices.back().each() * s.element();
}

const char* layer_name(const LayerForm& form) {
  if (form.mixture) return "layer of experts";
  switch (form.content) {
    case Content::whole: break;
    case Content::attention: return "attention layer";
    case Content::feed_forward: return "feed-forward layer";
    case Content::mamba: return "Mamba layer";
  }
  return "transformer layer";
}

// What no gradient goes into runs forward alone, and keeps nothing.
void end_at_forward(LayerWork& work) {
  work.backward.clear();
  work.recompute.clear();
  work.kept = {};
  work.restored = work.transient = Bytes(0);
  work.keeps_placeholders = false;
  work.skipped_flops = 2 * work.forward_model_flops;
  work.skipped_masked_flops = 2 * work.forward_masked_flops;
  work.recompute_model_flops = work.recompute_masked_flops = Flops(0);
}

}  // namespace

LayerWork transformer_layer(const Transformer& network, const Execution& execution,
                            const LayerForm& form) {
  const TransformerSlice s = slice(network, execution, form);
  LayerWork work;
  work.name = layer_name(form);
  const LayerScript script = transformer_script(network, execution, form);
  play(script, execution.recompute, work);
  work.skipped_flops = script.skipped;
  work.skipped_masked_flops = script.skipped_masked;
  divide_weights(work, s, network, execution, form);
  if (s.memory_length > 0) work.parameters += cross_attention_parameters(network, execution.tensor);
  work.output = s.stream_states();
  work.shared_buffers = chunked_buffers(s);
  const bool by_hand = s.kernels.fusion == Fusion::by_hand;
  work.transient = s.content == Content::mamba ? mamba_transient(s)
                   : by_hand                   ? attends(s) ? score_transient(s) : Bytes(0)
                                               : pytorch_layer_transient(s, form.mixture);
  work.forward_transient = widened_weights(s, execution.finetune);
  work.transient = work.transient + work.forward_transient;
  leave_placeholders(work, s);
  if (form.reach == Reach::below) end_at_forward(work);
  return work;
}

}  // namespace trainyard::models
