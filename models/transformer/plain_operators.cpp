// Norms, activations and dropout by plain operators: kernels that each read and write memory where
// other frameworks have one kernel. "r" read, "w" written, of a tensor's size; what a broadcast
// reads of a vector or of one number a token is left out.
//
//                         forward    backward
//   RMSNorm               8 kernels  16       on an fp32 copy of 16-bit tensors
//   LayerNorm             8          20       9r 6w; 25r 16w
//   GELU by tanh          8          10       10r 8w; 16r 10w
//   dropout               5          2        5r 5w; 3r 2w
//
// Where RMSNorm's operands are broadcast or of two types, numbers are handled one by one.
//
// Source: RMSNorm, LlamaRMSNorm of huggingface/transformers and what autograd runs for it. The
// others, google-research/bert modeling.py (gelu, layer_norm, dropout) in TensorFlow 1.13:
// nn.moments and nn.batch_normalization (tensorflow/python/ops/nn_impl.py), nn.dropout (nn_ops.py),
// gradients of tensorflow/python/ops/math_grad.py, as a graph without XLA runs them.
#include <span>
#include <utility>

#include "models/transformer/pytorch_script.h"

namespace trainyard::models {
namespace {

// How often an operator reads and writes a tensor.
struct Operator {
  const char* name;
  int read, written;
};

constexpr Operator kLayerNorm[] = {{" mean", 1, 0},
                                   {" squared difference", 1, 1},
                                   {" variance", 1, 0},
                                   {" scale of each element", 0, 1},
                                   {" times scale", 2, 1},
                                   {" mean times scale", 1, 1},
                                   {" offset of each element", 1, 1},
                                   {" sum", 2, 1}};

constexpr Operator kLayerNormGradient[] = {{" gradient of the scaled", 2, 1},
                                           {" gradient of the scale of each element", 2, 1},
                                           {" bias gradient", 1, 0},
                                           {" gradient of the offset", 1, 1},
                                           {" gradient of the mean of each element", 2, 1},
                                           {" gradient of the mean", 1, 0},
                                           {" gradient of the scale by the mean", 1, 1},
                                           {" gradients of the scale", 2, 1},
                                           {" weight gradient of each token", 1, 1},
                                           {" weight gradient", 1, 0},
                                           {" gradient of the deviation of each element", 1, 1},
                                           {" gradient of the deviation", 1, 0},
                                           {" gradient of the variance", 0, 1},
                                           {" gradient of the variance over the width", 1, 1},
                                           {" difference to the mean", 1, 1},
                                           {" difference doubled", 1, 1},
                                           {" gradient of the difference", 2, 1},
                                           {" gradient of the mean of all", 0, 1},
                                           {" gradient of the mean over the width", 1, 1},
                                           {" sum of gradients", 3, 1}};

constexpr Operator kGelu[] = {{" cube", 1, 1}, {" cube times coefficient", 1, 1},
                              {" sum", 2, 1},  {" scaled", 1, 1},
                              {" tanh", 1, 1}, {" plus one", 1, 1},
                              {" half", 1, 1}, {" times input", 2, 1}};

constexpr Operator kGeluGradient[] = {
    {" gradient by the input", 2, 1}, {" gradient of the half", 2, 1},
    {" gradient halved", 1, 1},       {" gradient of tanh", 2, 1},
    {" gradient scaled", 1, 1},       {" gradient times coefficient", 1, 1},
    {" input squared", 1, 1},         {" square times three", 1, 1},
    {" gradient of the cube", 2, 1},  {" sum of gradients", 3, 1}};

constexpr Operator kDropout[] = {{" random numbers", 0, 1},
                                 {" plus the kept share", 1, 1},
                                 {" mask", 1, 1},
                                 {" scaled", 1, 1},
                                 {" times mask", 2, 1}};

constexpr Operator kDropoutGradient[] = {{" backward times mask", 2, 1},
                                         {" backward scaled", 1, 1}};

void run(PytorchScript& script, std::span<const Operator> operators, const std::string& name,
         Bytes tensor) {
  for (const Operator& one : operators)
    script.pass(name + one.name, MemoryOp::elementwise, one.read * tensor, one.written * tensor);
}

// Operators of an RMSNorm of as many numbers.
struct RmsNorm {
  PytorchScript& script;
  const std::string& name;
  std::int64_t elements;

  void plain(const char* what, Bytes read, Bytes written) const {
    script.pass(name + what, MemoryOp::elementwise, read, written);
  }
  // Operands broadcast, or of two types.
  void broadcast(const char* what, Bytes read, Bytes written) const {
    script.pass(name + what, MemoryOp::elementwise, read, written, elements);
  }
};

}  // namespace

namespace {

void rms_norm_forward(const RmsNorm& norm, const NormedRows& normed) {
  const Bytes stored = norm.elements * normed.element;
  const Bytes single = norm.elements * size_of(Dtype::fp32);
  // y = w (x / rms(x)) in 16 bits, with x and x / rms(x) in fp32 between.
  const Bytes of_rows = normed.rows * size_of(Dtype::fp32);
  const bool copies = stored != single;
  if (copies) norm.broadcast(" to fp32", stored, single);
  norm.plain(" squares", single, single);
  norm.plain(" mean of squares", single, Bytes(0));
  norm.plain(" plus epsilon", of_rows, of_rows);
  norm.plain(" inverse root", of_rows, of_rows);
  norm.broadcast(" scaled", single, single);
  if (copies) norm.plain(" from fp32", single, stored);
  norm.broadcast(" times weight", stored, stored);
}

void rms_norm_backward(const RmsNorm& norm, const NormedRows& normed) {
  const Bytes stored = norm.elements * normed.element;
  const Bytes single = norm.elements * size_of(Dtype::fp32);
  norm.plain(" weight gradient of each token", 2 * stored, stored);
  norm.plain(" weight gradient", stored, Bytes(0));
  norm.broadcast(" gradient before the weight", stored, stored);
  const bool copies = stored != single;
  if (copies) norm.broadcast(" gradient to fp32", stored, single);
  norm.broadcast(" gradient of the scaled", single, single);
  norm.plain(" gradient of the scale of each element", 2 * single, single);
  norm.plain(" gradient of the scale", single, Bytes(0));
  const Bytes of_rows = normed.rows * size_of(Dtype::fp32);
  norm.plain(" cube of the scale", of_rows, of_rows);
  norm.plain(" gradient halved", of_rows, of_rows);
  norm.plain(" gradient of the root", 2 * of_rows, of_rows);
  norm.broadcast(" gradient of the mean", Bytes(0), single);
  norm.plain(" inputs to the first power", single, single);
  norm.plain(" inputs doubled", single, single);
  norm.plain(" gradient of the squares", 2 * single, single);
  norm.plain(" both gradients", 2 * single, single);
  if (copies) norm.plain(" gradient from fp32", single, stored);
}

}  // namespace

void norm_by_operators(PytorchScript& script, Norm norm, const std::string& name,
                       const NormedRows& normed, bool backward) {
  const std::int64_t numbers = normed.rows * normed.width;
  if (norm == Norm::layer_norm) {
    const Bytes stored = numbers * normed.element;
    return backward ? run(script, kLayerNormGradient, name, stored)
                    : run(script, kLayerNorm, name, stored);
  }
  const RmsNorm operators{script, name, numbers};
  backward ? rms_norm_backward(operators, normed) : rms_norm_forward(operators, normed);
}

bool runs_gelu_by_operators(const TransformerSlice& s) {
  return s.kernels.activations_by_operators && s.feed_forward == FeedForward::gelu;
}

Bytes kept_by_gelu_operators(const TransformerSlice& s) {
  return 3 * s.wide_element() + (s.autocast ? s.element() : Bytes(0));
}

// torch.pow is one of the operators that autocast runs in fp32, and what reads its result follows.
void gelu_by_operators(PytorchScript& script, const TransformerSlice& s, bool backward) {
  const std::int64_t numbers = s.tokens * s.ffn;
  const Bytes stored = numbers * s.element(), tensor = numbers * s.wide_element();
  const std::string name = backward ? "activation backward" : "activation";
  if (s.autocast) script.pass(name + " to fp32", MemoryOp::elementwise, stored, tensor, numbers);
  backward ? run(script, kGeluGradient, name, tensor) : run(script, kGelu, name, tensor);
  if (s.autocast) script.pass(name + " from fp32", MemoryOp::elementwise, tensor, stored);
}

// Cosines are broadcast over heads, halves are slices, queries and keys are views; Megatron-LM's
// chunks for slices, and copies at the end, move as much within a sixth. Under autocast
// cosines are fp32, as what lies between layers is, and so is what they are multiplied with.
void rotary_by_operators(PytorchScript& script, WorkList& list, const TransformerSlice& s,
                         bool backward) {
  const AutocastCopies copies(list, s);
  for (const auto& [which, heads] : {std::pair{" of queries", s.heads}, {" of keys", s.kv_heads}}) {
    const std::string name = std::string("rope") + (backward ? " backward" : "") + which;
    const std::int64_t numbers = s.tokens * heads * s.head_size;
    const Bytes whole = numbers * s.wide_element(), half = Bytes(whole.count() / 2);
    const auto one_by_one = [&](const char* what, Bytes read, Bytes written) {
      const std::int64_t count = written.count() / s.wide_element().count();
      script.pass(name + what, MemoryOp::elementwise, read, written,
                  s.kernels.broadcasts_in_vectors ? 0 : count);
    };
    if (backward) copies.widen(name, numbers);
    one_by_one(" negated half", half, half);
    one_by_one(" times cosine", whole, whole);
    one_by_one(" times sine", whole, whole);
    if (!backward) {
      one_by_one(" halves exchanged", whole, whole);
      one_by_one(" sum", 2 * whole, whole);
      copies.narrow(name, numbers);
      continue;
    }
    for (const char* part : {" first half", " second half"}) {
      script.pass(name + part + " zeros", MemoryOp::elementwise, Bytes(0), whole);
      one_by_one(part, half, half);
    }
    one_by_one(" sum of halves", 2 * whole, whole);
    copies.narrow(name + " by cosine", numbers);
    copies.narrow(name + " by sine", numbers);
    one_by_one(" sum", 2 * whole, whole);
  }
}

void PytorchScript::dropout(const std::string& name, Bytes tensor, Bytes mask) {
  if (s_.kernels.dropout_by_operators) return run(*this, kDropout, name, tensor);
  pass(name, MemoryOp::dropout, tensor, tensor + mask, mask.count());
}

void PytorchScript::dropout_gradient(const std::string& name, Bytes tensor, Bytes mask) {
  if (s_.kernels.dropout_by_operators) return run(*this, kDropoutGradient, name, tensor);
  pass(name + " backward", MemoryOp::dropout, tensor + mask, tensor);
}

void AutocastCopies::narrow(const std::string& name, std::int64_t numbers) const {
  if (!s_.autocast || numbers == 0) return;
  list_.kernel(name + " to 16 bits", MemoryBound{.op = MemoryOp::elementwise,
                                                 .read = numbers * s_.wide_element(),
                                                 .written = numbers * s_.element()});
}

void AutocastCopies::widen(const std::string& name, std::int64_t numbers) const {
  if (!s_.autocast || numbers == 0) return;
  list_.kernel(name + " to fp32", MemoryBound{.op = MemoryOp::elementwise,
                                              .read = numbers * s_.element(),
                                              .written = numbers * s_.wide_element(),
                                              .elements = numbers});
}

void AutocastCopies::input(const std::string& name, std::int64_t width) const {
  narrow(name + " input", s_.tokens * width);
}

void AutocastCopies::input_gradient(const std::string& name, std::int64_t width) const {
  widen(name + " input gradient", s_.tokens * width);
}

void AutocastCopies::weight(const std::string& name, std::int64_t numbers,
                            std::int64_t biases) const {
  narrow(name + " weight", numbers);
  narrow(name + " bias", biases);
}

void AutocastCopies::weight_gradient(const std::string& name, std::int64_t numbers,
                                     std::int64_t biases) const {
  if (!s_.autocast) return;
  const auto widened = [&](const std::string& what, std::int64_t count) {
    if (count == 0) return;
    list_.weight_gradient(what + " to fp32", MemoryBound{.op = MemoryOp::elementwise,
                                                         .read = count * s_.element(),
                                                         .written = count * s_.wide_element(),
                                                         .elements = count});
  };
  widened(name + " weight gradient", numbers);
  widened(name + " bias gradient", biases);
}

void AutocastCopies::branch_gradient(const std::string& name) const {
  narrow(name + " gradient", s_.shard_tokens * s_.hidden);
}

}  // namespace trainyard::models
