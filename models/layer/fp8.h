// What products in 8 bits need beside themselves: their operands, cast from 16 bits with a scale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/layer/kernel.h"

namespace trainyard::models {

class WorkList;

// How the scale of an operand is found and which numbers share it.
enum class Fp8Recipe : std::uint8_t {
  delayed,    // a tensor, by its largest number some steps ago
  current,    // a tensor, by its largest number, which a pass over it finds first
  rowwise,    // a row, found by the kernel that casts it; by columns, a pass over it finds them
  blockwise,  // 128 numbers of an input, 128 x 128 of a weight
  mxfp8,      // 32 numbers
};

std::string_view name(Fp8Recipe recipe);  // "delayed"

Scaling scaling_of(Fp8Recipe recipe);

struct Fp8Casts {
  Fp8Recipe recipe = Fp8Recipe::delayed;
  bool transposes = true;      // products read rows only: what is scaled whole is transposed too
  bool keeps_operands = true;  // the backward pass reads what the forward pass has cast
  bool casts_weights = true;   // in each pass
  bool turns_weights = false;  // kept in fp8 by rows alone: frozen ones are transposed in each pass
  bool norms_cast = false;     // kernels of norms write what the product behind them reads
  bool frozen = false;         // no gradients of weights: rows alone of inputs and gradients
  friend bool operator==(const Fp8Casts&, const Fp8Casts&) = default;
};

// The casts before one product. `own`: numbers of its first operand that the rank has before they
// are gathered from its group; product.m x product.k x product.batch of them without a gather.
// One number is read as 2 bytes and written as 1, and once more for its transpose or its cast by
// columns; scales are 4 bytes for each 128 numbers of a block, 1 for each 32 of mxfp8.
// Source: Transformer Engine, pytorch/module/linear.py and pytorch/tensor/*_tensor.py; torchao,
// float8/float8_linear.py; docs/cost-gemm.md; for several arrays Transformer Engine,
// pytorch/csrc/extensions/cast.cpp, multi_tensor_quantize_impl: one kernel of delayed scales alone.
class OperandCasts {
 public:
  // `arrays`: products whose operands are cast by themselves, but with delayed scales.
  OperandCasts(WorkList& list, const Fp8Casts& how, bool routed, std::int64_t arrays)
      : list_(list),
        how_(how),
        routed_(routed),
        kernels_(how.recipe == Fp8Recipe::delayed ? 1 : arrays) {}

  // Forward: an input, for the gradient of the weights too, and a weight.
  void input(const std::string& product, std::int64_t own, std::int64_t all, bool by_norm);
  // Backward: the gradient of an output, for both products that read it.
  void output_gradient(const std::string& product, std::int64_t own, std::int64_t all);
  void weight(const std::string& product, std::int64_t numbers, bool backward);
  // Of an input that was kept in 16 bits, for the gradient of the weights.
  void input_again(const std::string& product, std::int64_t numbers);

 private:
  void cast(std::string name, std::int64_t numbers, int copies, bool of_weights = false);
  void largest(std::string name, std::int64_t numbers, bool of_weights = false);
  void transpose(std::string name, std::int64_t numbers);
  void both_ways(const std::string& name, std::int64_t own, std::int64_t all);
  void by_columns(const std::string& name, std::int64_t numbers, bool of_weights);
  void add(std::string name, MemoryBound kernel, bool of_weights);

  WorkList& list_;
  const Fp8Casts& how_;
  bool routed_;
  std::int64_t kernels_;
};

}  // namespace trainyard::models
