// Norms, activations and dropout by plain operators: kernels that each read and write memory where
// other frameworks have one kernel. "r" read, "w" written, of a tensor's size; what a broadcast
// reads of a vector or of one number a token is left out.
//
//                         forward    backward
//   RMSNorm               6 kernels  13       on an fp32 copy of 16-bit tensors
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
#include <array>
#include <span>

#include "models/transformer/pytorch_script.h"

namespace trainyard::models {
namespace {

// How often an operator reads and writes a tensor.
struct Operator {
  const char* name;
  int read, written;
};

constexpr std::array<Operator, 8> kLayerNorm = {{{" mean", 1, 0},
                                                 {" squared difference", 1, 1},
                                                 {" variance", 1, 0},
                                                 {" scale of each element", 0, 1},
                                                 {" times scale", 2, 1},
                                                 {" mean times scale", 1, 1},
                                                 {" offset of each element", 1, 1},
                                                 {" sum", 2, 1}}};

constexpr std::array<Operator, 20> kLayerNormGradient = {
    {{" gradient of the scaled", 2, 1},
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
     {" sum of gradients", 3, 1}}};

constexpr std::array<Operator, 8> kGelu = {{{" cube", 1, 1},
                                            {" cube times coefficient", 1, 1},
                                            {" sum", 2, 1},
                                            {" scaled", 1, 1},
                                            {" tanh", 1, 1},
                                            {" plus one", 1, 1},
                                            {" half", 1, 1},
                                            {" times input", 2, 1}}};

constexpr std::array<Operator, 10> kGeluGradient = {{{" gradient by the input", 2, 1},
                                                     {" gradient of the half", 2, 1},
                                                     {" gradient halved", 1, 1},
                                                     {" gradient of tanh", 2, 1},
                                                     {" gradient scaled", 1, 1},
                                                     {" gradient times coefficient", 1, 1},
                                                     {" input squared", 1, 1},
                                                     {" square times three", 1, 1},
                                                     {" gradient of the cube", 2, 1},
                                                     {" sum of gradients", 3, 1}}};

constexpr std::array<Operator, 5> kDropout = {{{" random numbers", 0, 1},
                                               {" plus the kept share", 1, 1},
                                               {" mask", 1, 1},
                                               {" scaled", 1, 1},
                                               {" times mask", 2, 1}}};

constexpr std::array<Operator, 2> kDropoutGradient = {
    {{" backward times mask", 2, 1}, {" backward scaled", 1, 1}}};

void run(PytorchScript& script, std::span<const Operator> operators, const std::string& name,
         Bytes tensor) {
  for (const Operator& one : operators)
    script.pass(name + one.name, MemoryOp::elementwise, one.read * tensor, one.written * tensor);
}

}  // namespace

void PytorchScript::norm_operators(const std::string& name) {
  if (s_.norm == Norm::layer_norm) return run(*this, kLayerNorm, name, states());
  // y = w (x / rms(x)) in 16 bits, with x and x / rms(x) in fp32 between.
  const Bytes stored = states(), single = s_.shard_tokens * s_.hidden * size_of(Dtype::fp32);
  const auto one = [&](const char* what, Bytes read, Bytes written) {
    pass(name + what, MemoryOp::elementwise, read, written);
  };
  const auto broadcast = [&](const char* what, Bytes read, Bytes written) {
    pass(name + what, MemoryOp::elementwise, read, written, s_.shard_tokens * s_.hidden);
  };
  broadcast(" to fp32", stored, single);
  one(" squares", single, single);
  one(" mean of squares", single, Bytes(0));
  broadcast(" scaled", single, single);
  one(" from fp32", single, stored);
  broadcast(" times weight", stored, stored);
}

void PytorchScript::norm_gradient_operators(const std::string& name) {
  if (s_.norm == Norm::layer_norm) return run(*this, kLayerNormGradient, name, states());
  const Bytes stored = states(), single = s_.shard_tokens * s_.hidden * size_of(Dtype::fp32);
  const auto one = [&](const char* what, Bytes read, Bytes written) {
    pass(name + what, MemoryOp::elementwise, read, written);
  };
  const auto broadcast = [&](const char* what, Bytes read, Bytes written) {
    pass(name + what, MemoryOp::elementwise, read, written, s_.shard_tokens * s_.hidden);
  };
  one(" weight gradient of each token", 2 * stored, stored);
  one(" weight gradient", stored, Bytes(0));
  broadcast(" gradient before the weight", stored, stored);
  broadcast(" gradient to fp32", stored, single);
  broadcast(" gradient of the scaled", single, single);
  one(" gradient of the scale of each element", 2 * single, single);
  one(" gradient of the scale", single, Bytes(0));
  broadcast(" gradient of the mean", Bytes(0), single);
  one(" inputs to the first power", single, single);
  one(" inputs doubled", single, single);
  one(" gradient of the squares", 2 * single, single);
  one(" both gradients", 2 * single, single);
  one(" gradient from fp32", single, stored);
}

void gelu_by_operators(PytorchScript& script, Bytes tensor, bool backward) {
  if (backward) return run(script, kGeluGradient, "activation backward", tensor);
  run(script, kGelu, "activation", tensor);
}

void PytorchScript::dropout(const std::string& name, Bytes tensor, Bytes mask) {
  if (s_.kernels.dropout_by_operators) return run(*this, kDropout, name, tensor);
  pass(name, MemoryOp::dropout, tensor, tensor + mask, tensor.count() / s_.element().count());
}

void PytorchScript::dropout_gradient(const std::string& name, Bytes tensor, Bytes mask) {
  if (s_.kernels.dropout_by_operators) return run(*this, kDropoutGradient, name, tensor);
  pass(name + " backward", MemoryOp::dropout, tensor + mask, tensor);
}

}  // namespace trainyard::models
