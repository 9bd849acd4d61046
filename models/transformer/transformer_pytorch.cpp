// A transformer as PyTorch runs it, eagerly or compiled, where that differs from Megatron-LM's
// fused kernels (transformer_layer.cpp). Matrix multiplications, fused attention and collectives
// are the same. Symbols as in transformer.h; d bytes per element; "r" read, "w" written.
//
//                         eager                                   compiled
//   residual and norm     dropout r w mask; add 2r w; norm r w    one kernel 2r 2w mask
//     backward            norm 2r w, its parameters 2r,           one kernel 3r w (dropout: mask,
//                         sum of both branches 2r w,              one w more), parameters 2r
//                         dropout r mask w
//   norms after the additions (BERT): the same kernels, the sum of both branches before the norm's
//   bias, by a kernel     r w of the output                       by the product
//   bias gradient         r of the output's gradient              the same
//   GELU, ReLU            r w; backward 2r w                      the same
//   gate (SwiGLU, GeGLU)  r w, 2r w; backward 3 x (2r w)          2r w; backward 3r 2w
//   rope, of q and of k   rotate half .5r .5w, r w; 2 x (r w);    one kernel r w of both
//                         add 2r w (one kernel: both's r w)
//     backward            2 x (r w); negate .5r .5w; each half into
//                         zeros w, .5r .5w; 2 x (2r w)
//   unfused scores        scale, mask, softmax r w each,          one kernel r w; with dropout
//                         dropout r w mask                        one w and the mask more
//     backward            dropout r mask w; softmax 2r w;         one kernel 2r mask w
//                         causal mask, scale r w each
//     of fp32 copies      scores to fp32 d 4, softmax 4 4, weights  the same as without
//                         from fp32 4 d; backward the same of
//                         their gradients, softmax 4+4 4
//   relative positions    their bias is added where scale and mask stand; its gradient: the scores'
//                         r, the bias r w
//   q, k, v (unfused)     a copy each, and of the context         the same
//     backward (both)     one concatenation r w                   the same
//   products of their own copies only where attention is unfused; the sum of three gradients of
//                         their input, 2 x (2r w)                 the same
//   loss, per logit       to fp32 d 4, log-softmax 4 4            2 x d read (maximum, then sum)
//     backward            4 (zeros), 4 4+4, to 16 bits 4 d        d d
//   embedding             gradient zeroed, then added to;         the same
//                         tied: a sum of both gradients
//
// A mask of what comes later is chosen by torch.where, which has a gradient; an encoder's is added,
// and beside a softmax in fp32 (Llama's) a decoder's, too.
// Eager copies of heads and masks, rotary embeddings, and a type changed to a wider one, handle
// their numbers one by one (MemoryBound::elements), as operands are permuted, broadcast or of two
// types: TensorIterator has vectors of contiguous operands of one type only. So does dropout, for
// its random numbers, and the softmax of 16-bit rows that no warp holds.
//
// Kept between the passes: what Korthikanti et al. count (transformer_memory.cpp), as autograd
// saves the inputs of norms, linear layers and activations, the output of the softmax and masks
// of one byte. The loss keeps log-probabilities in fp32 (eager) or the logits themselves
// (compiled). While one operator runs backward, the gradients of its output and input exist too.
//
// Source: PyTorch 2.x, torch/csrc/autograd and tools/autograd/derivatives.yaml: which operators
// there are and what each saves; with saved_tensors_hooks a GPT layer keeps these tensors and the
// statistics of its norms. What torch.compile fuses is read off its rule, that element-wise
// operators and reductions over one iteration space are one kernel; Ansel et al., PyTorch 2,
// ASPLOS 2024, section 4. Eager RMSNorm is taken to be one kernel, as it is since PyTorch 2.9.
#include <algorithm>
#include <utility>

#include "models/transformer/attention/attention_script.h"
#include "models/transformer/attention/cross_attention.h"
#include "models/transformer/attention/score_script.h"
#include "models/transformer/experts.h"
#include "models/transformer/mamba/mamba_script.h"
#include "models/transformer/pytorch_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

void reordered(WorkList& list, const TransformerSlice& s, std::string name, std::int64_t numbers) {
  const Bytes tensor = numbers * s.element();
  const bool one_by_one = s.kernels.fusion == Fusion::eager && !s.kernels.broadcasts_in_vectors;
  PytorchScript(list, s).pass(std::move(name), MemoryOp::elementwise, tensor, tensor,
                              one_by_one ? numbers : 0);
}

void added_bias(WorkList& list, const TransformerSlice& s, const std::string& name, bool biased,
                std::int64_t numbers) {
  if (biased && s.kernels.bias_by_kernel) reordered(list, s, name + " bias", numbers);
}

void PytorchScript::norm(const std::string& name, bool joins) {
  if (by_operators()) return norm_by_operators(*this, s_.norm, name, normed_states(), false);
  if (eager() || !joins) return pass(name, norm_op(), states(), states());
  pass("residual and " + name, norm_op(), 2 * states(), 2 * states() + mask());
}

void PytorchScript::norm_gradient(const std::string& name, bool joins) {
  if (by_operators()) {
    norm_by_operators(*this, s_.norm, name, normed_states(), true);
    if (joins && !s_.post_norm) gradient_sum(name);
    return;
  }
  if (eager() || !joins) {
    pass(name + " backward", norm_op(), 2 * states(), states());
  } else {
    pass("residual and " + name + " backward", norm_op(), 3 * states() + mask(),
         (s_.dropout ? 2 : 1) * states());
  }
  if (s_.trained_norms) pass(name + " parameter gradients", norm_op(), 2 * states(), Bytes(0));
  if (joins && !s_.post_norm) gradient_sum(name);
}

void PytorchScript::gradient_sum(const std::string& name) {
  if (eager()) pass(name + " gradient sum", MemoryOp::elementwise, 2 * states(), states());
}

void PytorchScript::residual(const std::string& name) {
  if (!eager()) return;
  if (s_.dropout) dropout(name + " dropout", s_.branch_shard(), mask());
  pass(name, MemoryOp::elementwise, states() + s_.branch_shard(), states());
}

void PytorchScript::residual_gradient(const std::string& name) {
  AutocastCopies(list_, s_).branch_gradient(name);
  if (eager() && s_.dropout) dropout_gradient(name + " dropout", s_.branch_shard(), mask());
}

void PytorchScript::row_gradient(const std::string& name, std::int64_t rows, bool biased) {
  gathered_product(list_, s_, name + " gradient all-gather", name + " input gradient",
                   product(rows, s_.hidden));
  list_.weight_gradient(name + " weight gradient", Gemm{s_.hidden, rows, s_.tokens, 1, s_.gemm});
  bias_gradient(name, s_.hidden, biased);
  AutocastCopies(list_, s_).weight_gradient(name, s_.hidden * rows, biased ? s_.hidden : 0);
}

void PytorchScript::activation() {
  if (runs_gelu_by_operators(s_)) return gelu_by_operators(*this, s_, false);
  const Bytes half = of(s_.ffn);
  if (gated() && eager()) {
    pass("activation", MemoryOp::activation, half, half);
    pass("gate", MemoryOp::elementwise, 2 * half, half);
  } else {
    pass("activation", MemoryOp::activation, of(s_.fc1_width), half);
    if (squares(s_)) pass("square", MemoryOp::elementwise, half, half);
  }
}

void PytorchScript::activation_gradient() {
  if (runs_gelu_by_operators(s_)) return gelu_by_operators(*this, s_, true);
  const Bytes half = of(s_.ffn);
  if (gated() && eager()) {
    pass("gate backward", MemoryOp::elementwise, 2 * half, half);
    pass("gate backward of the activation", MemoryOp::elementwise, 2 * half, half);
    pass("activation backward", MemoryOp::activation, 2 * half, half);
  } else {
    // Twice the number, times the gradient.
    if (squares(s_)) {
      pass("square factor", MemoryOp::elementwise, half, half);
      pass("square backward", MemoryOp::elementwise, 2 * half, half);
    }
    pass("activation backward", MemoryOp::activation, half + of(s_.fc1_width), of(s_.fc1_width));
  }
}

namespace {

// The attention of a layer: heads, scores, context. Batched multiplication wants the heads of a
// sequence contiguous; grouped keys and values are repeated on the way.
class PytorchAttention final : public PytorchScript {
 public:
  using PytorchScript::PytorchScript;

  void head_norms(bool backward);
  void rope(bool backward);
  void repeat(bool backward);
  void heads();
  void heads_gradient();
  void core();
  void core_gradient();
  void context_copy(const std::string& suffix) {
    if (s_.kernels.one_attention()) return;
    reordered(list_, s_, "context copy" + suffix, s_.tokens * s_.attention_width);
  }

 private:
  // Each head by itself, or all of a token.
  NormedRows normed_heads(std::int64_t heads) const {
    const bool whole = s_.head_norm == HeadNorm::whole;
    return {s_.tokens * (whole ? 1 : heads), (whole ? heads : 1) * s_.head_size, s_.element()};
  }
  Kernel scores_gemm() const {
    const std::int64_t length = s_.sequence_length;
    return Gemm{length, length, s_.head_size, s_.micro_batch * s_.heads, s_.of_heads()};
  }
  Kernel context_gemm() const {
    const std::int64_t length = s_.sequence_length;
    return Gemm{length, s_.head_size, length, s_.micro_batch * s_.heads, s_.of_heads()};
  }
};

void PytorchAttention::head_norms(bool backward) {
  if (s_.head_norm == HeadNorm::none) return;
  for (const auto& [name, heads] : {std::pair{"query norm", s_.heads}, {"key norm", s_.kv_heads}}) {
    const Bytes states = of(heads * s_.head_size);
    if (by_operators() && s_.head_norm != HeadNorm::unweighted) {
      norm_by_operators(*this, s_.norm, name, normed_heads(heads), backward);
      continue;
    }
    if (!backward) {
      pass(name, norm_op(), states, states);
      continue;
    }
    pass(std::string(name) + " backward", norm_op(), 2 * states, states);
    if (s_.head_norm == HeadNorm::unweighted || !s_.trained_heads) continue;
    pass(std::string(name) + " parameter gradients", norm_op(), 2 * states, Bytes(0));
  }
}

void PytorchAttention::rope(bool backward) {
  if (s_.positional != Positional::rope) return;
  if (s_.kernels.rotary_by_operators()) return rotary_by_operators(*this, list_, s_, backward);
  const Bytes both = of((s_.heads + s_.kv_heads) * s_.head_size);
  pass(backward ? "rope backward" : "rope", MemoryOp::rope, both, both);
}

void PytorchAttention::heads() {
  head_norms(false);
  rope(false);
  if (s_.kernels.one_attention()) return repeat(false);
  for (const char* name : {"query copy", "key copy", "value copy"})
    reordered(list_, s_, name, s_.tokens * s_.attention_width);
}

// A copy for every query head, and backward the sum of their gradients. A compiled rotary embedding
// writes its copies itself, and reads their gradients.
void PytorchAttention::repeat(bool backward) {
  if (s_.attended_heads() == s_.kv_heads) return;
  const std::int64_t one = s_.kv_heads * s_.head_size, all = s_.attention_width;
  const bool one_by_one = eager() && !s_.kernels.broadcasts_in_vectors;
  const auto copy = [&](const std::string& name, std::int64_t read) {
    const Bytes few = of(read), many = of(read + all - one);
    if (backward) return pass(name + " gradient sum", MemoryOp::elementwise, many, few);
    pass(name + " copies", MemoryOp::elementwise, few, many, one_by_one ? s_.tokens * all : 0);
  };
  const bool rotates = !eager() && s_.positional == Positional::rope;
  copy("key", rotates ? 0 : one);
  copy("value", one);
}

void PytorchAttention::heads_gradient() {
  if (s_.kernels.one_attention()) repeat(true);
  rope(true);
  head_norms(true);
  const bool separate = s_.kernels.separate_projections;
  if (separate && s_.kernels.one_attention()) return;
  reordered(list_, s_, separate ? "qkv gradient copies" : "qkv gradient concatenation",
            s_.tokens * s_.qkv_width);
}

void PytorchAttention::core() {
  if (s_.kernels.one_attention()) return fused_attention_forward(list_, s_);
  list_.kernel("attention scores", scores_gemm());
  scores_to_weights(list_, s_, self_scores(s_));
  list_.kernel("attention context", context_gemm());
}

void PytorchAttention::core_gradient() {
  if (s_.kernels.one_attention()) return fused_attention_backward(list_, s_);
  list_.kernel("attention probability gradient", scores_gemm());
  list_.kernel("attention value gradient", context_gemm());
  weights_to_scores_gradient(list_, s_, self_scores(s_));
  list_.kernel("attention query gradient", context_gemm());
  list_.kernel("attention key gradient", context_gemm());
}

}  // namespace

namespace {

bool biased(PieceKind kind, const Biases& biases) {
  if (kind == PieceKind::qkv) return biases.qkv;
  return kind == PieceKind::proj ? biases.proj : biases.feed_forward;
}

void columns_forward(WorkList& list, const TransformerSlice& s, PieceKind kind, const char* name) {
  const AutocastCopies copies(list, s);
  bool first = true;
  for (const Columns& layer : column_layers(s, kind, name)) {
    copies.input(layer.name, s.hidden);
    copies.weight(layer.name, layer.width * s.hidden, biased(kind, s.biases) ? layer.width : 0);
    column_forward(list, s, name, layer, first);
    first = false;
    added_bias(list, s, layer.name, biased(kind, s.biases), s.tokens * layer.width);
  }
}

void columns_backward(WorkList& list, const TransformerSlice& s, PieceKind kind, const char* name) {
  PytorchScript script(list, s);
  const AutocastCopies copies(list, s);
  const std::vector<Columns> layers = column_layers(s, kind, name);
  column_backward(list, s, name, layers);
  for (const Columns& layer : layers) {
    const std::int64_t biases = biased(kind, s.trained_biases) ? layer.width : 0;
    script.bias_gradient(layer.name, layer.width, biases > 0);
    copies.weight_gradient(layer.name, layer.width * s.hidden, biases);
    copies.input_gradient(layer.name, s.hidden);
  }
  if (s.post_norm) script.gradient_sum(kind == PieceKind::qkv ? "residual 1" : "residual 2");
}

}  // namespace

namespace {

using P = PieceKind;

// Writes down the pieces of one layer.
class PytorchLayer {
 public:
  PytorchLayer(LayerScript& script, const TransformerSlice& slice) : script_(script), s_(slice) {}

  void norm(P kind, const char* name) {
    add(
        kind, [=](WorkList&, PytorchAttention s) { s.norm(name, true); },
        [=](WorkList&, PytorchAttention s) { s.norm_gradient(name, true); });
  }
  void attention();
  void residual(P kind, const char* name) {
    add(
        kind, [=](WorkList&, PytorchAttention s) { s.residual(name); },
        [=](WorkList&, PytorchAttention s) { s.residual_gradient(name); });
  }
  // The three pieces of a feed-forward layer of this slice.
  void feed_forward(P fc1, P activation, P fc2);
  void mixture();

 private:
  // A piece whose passes take a list and the script that writes to it.
  template <typename Forward, typename Backward>
  void add(P kind, Forward forward, Backward backward) {
    add_piece(
        script_, kind, s_,
        [&](WorkList& list, const TransformerSlice& s) {
          forward(list, PytorchAttention(list, s));
        },
        [&](WorkList& list, const TransformerSlice& s) {
          backward(list, PytorchAttention(list, s));
        });
  }
  // Linear layers like those of `like`.
  void column(P kind, P like, const char* name) {
    add(
        kind,
        [&](WorkList& list, const PytorchAttention&) { columns_forward(list, s_, like, name); },
        [&](WorkList& list, const PytorchAttention&) { columns_backward(list, s_, like, name); });
  }
  void row(P kind, P like, const char* name, std::int64_t rows);
  void shared_sum(bool backward, WorkList& list, PytorchScript script);

  LayerScript& script_;
  const TransformerSlice& s_;
};

// The copy of the context is between attention and proj.
void PytorchLayer::row(P kind, P like, const char* name, std::int64_t rows) {
  add(
      kind,
      [&](WorkList& list, PytorchAttention s) {
        if (kind == P::proj) s.context_copy("");
        AutocastCopies(list, s_).weight(name, s_.hidden * rows,
                                        biased(like, s_.biases) ? s_.hidden : 0);
        reduced_product(list, s_, name, s.product(s_.hidden, rows));
        added_bias(list, s_, name, biased(like, s_.biases), s_.shard_tokens * s_.hidden);
      },
      [&](WorkList&, PytorchAttention s) {
        s.row_gradient(name, rows, biased(like, s_.trained_biases));
        if (kind == P::proj) s.context_copy(" backward");
      });
}

void PytorchLayer::attention() {
  if (s_.latent.used()) {
    add_piece(script_, P::compress, s_, latent_compression_forward, latent_compression_backward);
    add_piece(script_, P::qkv, s_, latent_expansion_forward, latent_expansion_backward);
    add_piece(script_, P::heads, s_, pytorch_latent_heads, pytorch_latent_heads_backward);
  } else {
    column(P::qkv, P::qkv, "qkv");
    add(
        P::heads, [](WorkList&, PytorchAttention s) { s.heads(); },
        [](WorkList&, PytorchAttention s) { s.heads_gradient(); });
  }
  add(
      P::core, [](WorkList&, PytorchAttention s) { s.core(); },
      [](WorkList&, PytorchAttention s) { s.core_gradient(); });
  row(P::proj, P::proj, "proj", s_.attention_width);
}

void PytorchLayer::feed_forward(P fc1, P activation, P fc2) {
  column(fc1, P::fc1, "fc1");
  add(
      activation, [](WorkList&, PytorchAttention s) { s.activation(); },
      [](WorkList&, PytorchAttention s) { s.activation_gradient(); });
  row(fc2, P::fc2, "fc2", s_.ffn);
}

// The gate's sigmoid is of one number for each token, which an eager kernel multiplies the row by.
void PytorchLayer::shared_sum(bool backward, WorkList& list, PytorchScript script) {
  const std::int64_t numbers = s_.shard_tokens * s_.hidden;
  const Bytes states = numbers * s_.element();
  const bool gated = s_.moe.shared_gate && eager(s_);
  if (!backward) {
    shared_gate(list, s_, false);
    if (gated) script.pass("shared rows by gate", MemoryOp::elementwise, states, states, numbers);
    return script.pass("shared and routed sum", MemoryOp::elementwise, 2 * states, states);
  }
  if (gated) {
    script.pass("shared rows by gate backward", MemoryOp::elementwise, states, states, numbers);
    script.pass("gate gradient of each number", MemoryOp::elementwise, 2 * states, states);
    script.pass("gate gradient", MemoryOp::column_sum, states, Bytes(0));
    script.pass("gate input gradient sum", MemoryOp::elementwise, 2 * states, states);
  }
  script.pass("shared and routed gradient sum", MemoryOp::elementwise, 2 * states, states);
  shared_gate(list, s_, true);
}

void PytorchLayer::mixture() {
  eager(s_) ? add_eager_experts(script_, s_) : add_experts(script_, s_);
  if (s_.shared_ffn > 0) {
    const TransformerSlice shared = shared_experts(s_);
    PytorchLayer(script_, shared).feed_forward(P::shared_fc1, P::shared_activation, P::shared_fc2);
    add(
        P::shared_sum,
        [&](WorkList& list, const PytorchAttention& s) { shared_sum(false, list, s); },
        [&](WorkList& list, const PytorchAttention& s) { shared_sum(true, list, s); });
  }
}

}  // namespace

void add_pytorch(LayerScript& script, const TransformerSlice& slice, bool mixture) {
  PytorchLayer layer(script, slice);
  if (slice.content != Content::whole) {
    const bool feeds = slice.content == Content::feed_forward;
    layer.norm(feeds ? P::norm_2 : P::norm_1, "norm");
    if (feeds)
      mixture ? layer.mixture() : layer.feed_forward(P::fc1, P::activation, P::fc2);
    else
      slice.content == Content::mamba ? add_mamba(script, slice) : layer.attention();
    layer.residual(feeds ? P::residual_2 : P::residual_1, "residual");
    if (mixture) order_mixture(script);
    return;
  }
  if (!slice.post_norm) layer.norm(P::norm_1, "norm 1");
  layer.attention();
  layer.residual(P::residual_1, "residual 1");
  if (slice.memory_length > 0) add_cross_attention(script, slice);
  slice.post_norm ? layer.norm(P::norm_1, "norm 1") : layer.norm(P::norm_2, "norm 2");
  mixture ? layer.mixture() : layer.feed_forward(P::fc1, P::activation, P::fc2);
  layer.residual(P::residual_2, "residual 2");
  if (slice.post_norm) layer.norm(P::norm_2, "norm 2");
  if (mixture) order_mixture(script);
}

Bytes pytorch_layer_transient(const TransformerSlice& s, bool mixture) {
  const std::int64_t routed = std::max(s.expert_rows() * s.expert_fc1_width(),
                                       std::max(s.expert_rows(), s.routed_rows) * s.hidden);
  const std::int64_t widest = mixture ? routed : s.tokens * s.fc1_width;
  const bool feeds = s.content != Content::attention;
  const bool attends = s.content != Content::feed_forward;
  return std::max(feeds ? 2 * widest * s.element() : Bytes(0),
                  attends ? score_transient(s) : Bytes(0));
}

}  // namespace trainyard::models
