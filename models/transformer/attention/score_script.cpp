#include "models/transformer/attention/score_script.h"

#include <algorithm>

#include "models/transformer/pytorch_script.h"

namespace trainyard::models {
namespace {

class ScoreScript {
 public:
  ScoreScript(WorkList& list, const TransformerSlice& slice, const Scores& scores)
      : list_(list),
        script_(list, slice),
        s_(slice),
        scores_(scores),
        count_(slice.tokens * slice.heads * scores.keys) {}

  void forward();
  void backward();

 private:
  bool eager() const { return s_.kernels.fusion == Fusion::eager; }
  bool compiled() const { return s_.kernels.fusion == Fusion::compiled; }
  bool by_operators() const { return s_.softmax() != SoftmaxKernels::kernel; }
  bool biased() const { return scores_.bias > Bytes(0); }
  Bytes stored() const { return count_ * s_.element(); }
  Bytes single() const { return count_ * size_of(Dtype::fp32); }
  Bytes mask() const { return Bytes(s_.score_dropout ? count_ : 0); }
  // What drops the softmax's own fp32 results: a script under torch.autocast that does not cast
  // them itself (Hugging Face's BERT; its GPT-2 does).
  bool drops_single() const {
    return s_.score_dropout && s_.autocast && s_.widens_scores() && !s_.kernels.softmax;
  }
  // softmax(dtype=torch.float32) reads fp16 itself, and its gradient is fp16 (host_softmax,
  // half_to_float); bf16 is cast before, as is what a script casts: T5's and Megatron-LM's.
  bool reads_stored() const {
    return eager() && s_.positional != Positional::relative && s_.stored == Dtype::fp16;
  }
  // Megatron-LM's and T5's products scale; Megatron-LM masks what it has cast.
  bool scales() const { return scores_.scaled && eager(); }
  bool masks_copies() const { return !eager() && !biased() && s_.widens_scores(); }
  // Hugging Face's Llama adds a mask that nobody trains; other decoders choose by it.
  bool mask_has_gradient() const {
    const bool adds = eager() && s_.kernels.softmax == SoftmaxKernels::fp32;
    return scores_.causal && !adds;
  }
  void pass(const std::string& name, MemoryOp op, Bytes read, Bytes written,
            std::int64_t one_by_one = 0) {
    script_.pass(name, op, read, written, one_by_one);
  }
  // A wider type is written number by number, a narrower one in vectors (TensorIterator).
  void widen(const std::string& what) {
    pass(what + " to fp32", MemoryOp::elementwise, stored(), single(), eager() ? count_ : 0);
  }
  void narrow(const std::string& what) {
    pass(what + " from fp32", MemoryOp::elementwise, single(), stored());
  }
  void dropout(Bytes weights);
  void dropout_gradient(Bytes weights);
  void mask_scores(const std::string& suffix);
  void softmax();
  void softmax_gradient();
  std::int64_t softmax_one_by_one() const;

  WorkList& list_;
  PytorchScript script_;
  const TransformerSlice& s_;
  const Scores& scores_;
  std::int64_t count_;
};

// PyTorch's kernel for rows that no warp holds: above 1,024 numbers, since 2.10 or earlier 2,048.
// Source: aten/src/ATen/native/cuda/SoftMax.cu, host_softmax.
std::int64_t ScoreScript::softmax_one_by_one() const {
  constexpr std::int64_t kRowOfWarp = 1024;
  const bool narrow = s_.element() <= Bytes(2);
  return by_operators() && narrow && scores_.keys > kRowOfWarp ? count_ : 0;
}

void ScoreScript::dropout(Bytes weights) {
  const std::string name = scores_.attention + " dropout";
  eager() ? script_.dropout(name, weights, mask())
          : pass(name, MemoryOp::dropout, weights, weights + mask());
}

void ScoreScript::dropout_gradient(Bytes weights) {
  const std::string name = scores_.attention + " dropout";
  eager() ? script_.dropout_gradient(name, weights, mask())
          : pass(name + " backward", MemoryOp::dropout, weights + mask(), weights);
}

void ScoreScript::mask_scores(const std::string& suffix) {
  const std::string name = scores_.attention + " mask" + suffix;
  if (masks_copies()) return pass(name, MemoryOp::elementwise, single(), single());
  reordered(list_, s_, name, count_);
}

void ScoreScript::softmax() {
  if (!s_.widens_scores())
    return pass(scores_.softmax, MemoryOp::softmax, stored(), stored(), softmax_one_by_one());
  if (!reads_stored()) widen(scores_.attention + " scores");
  if (masks_copies()) mask_scores("");
  pass(scores_.softmax, MemoryOp::softmax, reads_stored() ? stored() : single(), single());
  if (drops_single()) dropout(single());
  narrow(scores_.attention + " weights");
}

void ScoreScript::softmax_gradient() {
  const std::string name = scores_.softmax + " backward";
  if (!s_.widens_scores()) return pass(name, MemoryOp::softmax, 2 * stored(), stored());
  widen(scores_.attention + " weight gradients");
  if (drops_single()) dropout_gradient(single());
  pass(name, MemoryOp::softmax, 2 * single(), reads_stored() ? stored() : single());
  if (masks_copies() && mask_has_gradient()) mask_scores(" backward");
  if (!reads_stored()) narrow(scores_.attention + " score gradients");
}

void ScoreScript::forward() {
  if (compiled())
    return pass(scores_.softmax, MemoryOp::softmax, stored() + scores_.bias,
                (s_.score_dropout ? 2 : 1) * stored() + mask());
  if (biased()) {
    pass("position bias sum", MemoryOp::elementwise, stored() + scores_.bias, stored(),
         eager() ? count_ : 0);
  } else if (by_operators()) {
    if (scales()) pass(scores_.attention + " scale", MemoryOp::elementwise, stored(), stored());
    if (!masks_copies()) mask_scores("");
  }
  softmax();
  if (s_.score_dropout && !drops_single()) dropout(stored());
}

void ScoreScript::backward() {
  if (compiled()) {
    pass(scores_.softmax + " backward", MemoryOp::softmax, 2 * stored() + mask(), stored());
  } else {
    if (s_.score_dropout && !drops_single()) dropout_gradient(stored());
    softmax_gradient();
  }
  if (biased()) {
    // Summed over the sequences, and with what the other layers have added.
    pass("position bias gradient", MemoryOp::elementwise, stored() + scores_.bias, scores_.bias);
  } else if (by_operators() && !compiled()) {
    if (mask_has_gradient() && !masks_copies()) mask_scores(" backward");
    if (scales())
      pass(scores_.attention + " scale backward", MemoryOp::elementwise, stored(), stored());
  }
}

// Of each score while a kernel of them runs.
Bytes score_element(const TransformerSlice& s) {
  return s.widens_scores() ? size_of(Dtype::fp32) : s.element();
}

}  // namespace

Scores self_scores(const TransformerSlice& s) {
  return {.attention = "attention",
          .softmax = "softmax",
          .keys = s.sequence_length,
          .bias = position_bias_bytes(s),
          .causal = s.causal};
}

void scores_to_weights(WorkList& list, const TransformerSlice& slice, const Scores& scores) {
  ScoreScript(list, slice, scores).forward();
}

void weights_to_scores_gradient(WorkList& list, const TransformerSlice& slice,
                                const Scores& scores) {
  ScoreScript(list, slice, scores).backward();
}

Bytes kept_of_scores(const TransformerSlice& s, std::int64_t scores) {
  const Bytes weights = scores * s.element();
  const Bytes dropped = s.score_dropout ? Bytes(scores) : Bytes(0);
  if (s.widens_scores()) return scores * score_element(s) + dropped + weights;
  return s.score_dropout ? 2 * weights + dropped : weights;
}

Bytes score_transient(const TransformerSlice& s) {
  if (s.kernels.fused_attention()) return Bytes(0);
  if (s.kernels.fusion == Fusion::by_hand && s.softmax() == SoftmaxKernels::kernel) return Bytes(0);
  const std::int64_t keys = std::max(s.sequence_length, s.memory_length);
  return 2 * s.tokens * s.heads * keys * score_element(s);
}

}  // namespace trainyard::models
