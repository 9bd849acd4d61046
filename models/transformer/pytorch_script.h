// The kernels of a transformer as PyTorch runs them, eagerly or compiled, where they differ from
// Megatron-LM's fused ones. What each reads and writes: transformer_pytorch.cpp, and of what runs
// as plain operators, plain_operators.cpp.
#pragma once

#include <string>

#include "models/transformer/transformer.h"

namespace trainyard::models {

// torch.autocast's kernels: 16-bit copies of what linear layers read, and the way back of their
// gradients. Nothing where the slice has no autocast.
class AutocastCopies {
 public:
  AutocastCopies(WorkList& list, const TransformerSlice& slice) : list_(list), s_(slice) {}

  // `width` numbers of each token.
  void input(const std::string& name, std::int64_t width) const;
  void input_gradient(const std::string& name, std::int64_t width) const;
  // A weight and its bias, 0 without one.
  void weight(const std::string& name, std::int64_t numbers, std::int64_t biases) const;
  void weight_gradient(const std::string& name, std::int64_t numbers, std::int64_t biases) const;
  // What comes back to a branch from its residual addition.
  void branch_gradient(const std::string& name) const;
  // So many numbers to 16 bits, or back.
  void narrow(const std::string& name, std::int64_t numbers) const;
  void widen(const std::string& name, std::int64_t numbers) const;

 private:
  WorkList& list_;
  const TransformerSlice& s_;
};

// Rows that a norm reads, of so many numbers of `element` bytes.
struct NormedRows {
  std::int64_t rows = 0, width = 0;
  Bytes element;
};

class PytorchScript {
 public:
  PytorchScript(WorkList& list, const TransformerSlice& slice) : list_(list), s_(slice) {}

  // A norm, and backward with the gradients of its parameters. `joins`: the residual addition
  // before the norm is part of its kernel. Only the embedding's output has none, and its addition
  // of positions takes that place.
  void norm(const std::string& name, bool joins);
  void norm_gradient(const std::string& name, bool joins);
  // The gradients of a residual addition and of the branch beside it are added: behind the norm of
  // the branch, or where norms stand after the additions, behind its first linear layer.
  void gradient_sum(const std::string& name);
  // Dropout and residual addition, where they are kernels of their own.
  void residual(const std::string& name);
  void residual_gradient(const std::string& name);
  // With autocast after the copies that the product reads.
  void linear(const std::string& name, std::int64_t columns, std::int64_t rows) {
    const AutocastCopies copies(list_, s_);
    copies.input(name, rows);
    copies.weight(name, columns * rows, 0);
    list_.kernel(name, product(columns, rows));
  }
  Gemm product(std::int64_t columns, std::int64_t rows) const {
    return {s_.tokens, columns, rows, 1, s_.gemm};
  }
  // What the gradient of a bias of `columns` reads, if there is one.
  void bias_gradient(const std::string& name, std::int64_t columns, bool biased) {
    if (biased) pass(name + " bias gradient", MemoryOp::column_sum, of(columns), Bytes(0));
  }
  // The backward pass of proj and fc2, which are split by rows.
  void row_gradient(const std::string& name, std::int64_t rows, bool biased);
  void activation();
  void activation_gradient();
  // The loss over the logits of this rank.
  void loss();
  void loss_gradient();

  // Dropout of a tensor as a kernel of its own, which keeps `mask`, a byte for each number.
  void dropout(const std::string& name, Bytes tensor, Bytes mask);
  void dropout_gradient(const std::string& name, Bytes tensor, Bytes mask);

  // A kernel whose threads handle `one_by_one` numbers so (MemoryBound::elements).
  void pass(std::string name, MemoryOp op, Bytes read, Bytes written, std::int64_t one_by_one = 0) {
    list_.kernel(std::move(name),
                 MemoryBound{.op = op, .read = read, .written = written, .elements = one_by_one});
  }

 protected:
  bool eager() const { return models::eager(s_); }
  bool by_operators() const { return s_.kernels.norms_by_operators; }
  Bytes of(std::int64_t width) const { return s_.tokens * width * s_.element(); }
  MemoryOp norm_op() const {
    return s_.norm == Norm::layer_norm ? MemoryOp::layer_norm : MemoryOp::rms_norm;
  }

  WorkList& list_;
  const TransformerSlice& s_;

 private:
  NormedRows normed_states() const { return {s_.shard_tokens, s_.hidden, s_.wide_element()}; }
  Bytes states() const { return s_.shard_tokens * s_.hidden * s_.wide_element(); }
  Bytes mask() const { return Bytes(s_.dropout ? s_.shard_tokens * s_.hidden : 0); }
  bool gated() const { return models::gated(s_); }
};

// A tensor of as many numbers copied in another order, or joined with one that is broadcast.
void reordered(WorkList& list, const TransformerSlice& slice, std::string name,
               std::int64_t numbers);

// The sum of a linear layer's output of as many numbers with its bias, where a kernel of its own
// makes it.
void added_bias(WorkList& list, const TransformerSlice& slice, const std::string& name, bool biased,
                std::int64_t numbers);

// The norm of rows, or its gradients, by plain operators.
void norm_by_operators(PytorchScript& script, Norm norm, const std::string& name,
                       const NormedRows& normed, bool backward);

// GELU of the input of fc2, or its gradient, by plain operators.
void gelu_by_operators(PytorchScript& script, const TransformerSlice& slice, bool backward);

// Rotary embeddings of queries and keys, or their gradients, by plain operators; `list` is the
// script's.
void rotary_by_operators(PytorchScript& script, WorkList& list, const TransformerSlice& slice,
                         bool backward);

}  // namespace trainyard::models
