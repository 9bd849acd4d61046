#include "models/layer/fp8.h"

#include "models/layer/work_list.h"
#include "sim/base/check.h"
#include "sim/base/divide.h"

namespace trainyard::models {
namespace {

constexpr std::int64_t kBlock = 128, kMicroBlock = 32;

// Of the scales of one copy.
Bytes scales(Fp8Recipe recipe, std::int64_t numbers) {
  switch (recipe) {
    case Fp8Recipe::blockwise: return divide_up(numbers, kBlock) * size_of(Dtype::fp32);
    case Fp8Recipe::mxfp8: return Bytes(divide_up(numbers, kMicroBlock));
    case Fp8Recipe::delayed:
    case Fp8Recipe::current:
    case Fp8Recipe::rowwise: break;
  }
  return Bytes(0);
}

}  // namespace

std::string_view name(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::delayed: return "delayed";
    case Fp8Recipe::current: return "current";
    case Fp8Recipe::rowwise: return "rowwise";
    case Fp8Recipe::blockwise: return "blockwise";
    case Fp8Recipe::mxfp8: return "mxfp8";
  }
  TRAINYARD_CHECK(false, "fp8 recipe {}", static_cast<int>(recipe));
  return "?";
}

Scaling scaling_of(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::delayed:
    case Fp8Recipe::current: return Scaling::tensor;
    case Fp8Recipe::rowwise: return Scaling::row;
    case Fp8Recipe::blockwise: return Scaling::block;
    case Fp8Recipe::mxfp8: return Scaling::micro;
  }
  TRAINYARD_CHECK(false, "fp8 recipe {}", static_cast<int>(recipe));
  return Scaling::tensor;
}

void OperandCasts::add(std::string name, MemoryBound kernel, bool of_weights) {
  kernel.kernels = kernels_;
  routed_      ? list_.routed_kernel(std::move(name), kernel, of_weights)
  : of_weights ? list_.weight_gradient(std::move(name), kernel)
               : list_.kernel(std::move(name), kernel);
}

void OperandCasts::cast(std::string name, std::int64_t numbers, int copies, bool of_weights) {
  const Bytes copy = numbers * size_of(Dtype::fp8) + scales(how_.recipe, numbers);
  add(std::move(name), {MemoryOp::cast, numbers * size_of(Dtype::bf16), copies * copy}, of_weights);
}

void OperandCasts::largest(std::string name, std::int64_t numbers, bool of_weights) {
  add(std::move(name), {MemoryOp::amax, numbers * size_of(Dtype::bf16), Bytes(0)}, of_weights);
}

void OperandCasts::transpose(std::string name, std::int64_t numbers) {
  const Bytes copy = numbers * size_of(Dtype::fp8);
  add(std::move(name), {MemoryOp::cast, copy, copy}, false);
}

// Of what both a product and a gradient of weights read. Blocks are those of rows in one copy and
// of columns in the other.
void OperandCasts::both_ways(const std::string& name, std::int64_t own, std::int64_t all) {
  switch (how_.recipe) {
    case Fp8Recipe::current: largest(name + " largest", own); [[fallthrough]];
    case Fp8Recipe::delayed:
      if (!how_.transposes) return cast(name + " cast", own, 1);
      if (own == all) return cast(name + " cast", own, 2);
      cast(name + " cast", own, 1);
      return transpose(name + " transpose", all);
    case Fp8Recipe::rowwise: cast(name + " cast", own, 1); return by_columns(name, all, false);
    case Fp8Recipe::blockwise:
    case Fp8Recipe::mxfp8: return cast(name + " cast", own, 2);
  }
}

// The scale of a whole tensor is that of its rows.
void OperandCasts::by_columns(const std::string& name, std::int64_t numbers, bool of_weights) {
  if (how_.recipe == Fp8Recipe::rowwise) largest(name + " largest by columns", numbers, of_weights);
  cast(name + " cast by columns", numbers, 1, of_weights);
}

void OperandCasts::input(const std::string& product, std::int64_t own, std::int64_t all,
                         bool by_norm) {
  const std::string name = product + " input";
  if (by_norm && how_.norms_cast) {
    if (how_.transposes && !how_.frozen) transpose(name + " transpose", all);
    return;
  }
  if (how_.keeps_operands && !how_.frozen) return both_ways(name, own, all);
  if (how_.recipe == Fp8Recipe::current) largest(name + " largest", own);
  cast(name + " cast", own, 1);
}

void OperandCasts::output_gradient(const std::string& product, std::int64_t own, std::int64_t all) {
  const std::string name = product + " output gradient";
  if (!how_.frozen) return both_ways(name, own, all);
  if (how_.recipe == Fp8Recipe::current) largest(name + " largest", own);
  cast(name + " cast", own, 1);
}

// Rows are outputs: forward reads them, the gradient of the input the columns.
void OperandCasts::weight(const std::string& product, std::int64_t numbers, bool backward) {
  const std::string name = product + " weight";
  if (!how_.casts_weights) {
    if (backward && how_.frozen && how_.turns_weights) transpose(name + " transpose", numbers);
    return;
  }
  if (how_.keeps_operands) {
    if (!backward) both_ways(name, numbers, numbers);
    return;
  }
  if (backward) return by_columns(name, numbers, false);
  if (how_.recipe == Fp8Recipe::current) largest(name + " largest", numbers);
  cast(name + " cast", numbers, 1);
}

void OperandCasts::input_again(const std::string& product, std::int64_t numbers) {
  if (!how_.keeps_operands) by_columns(product + " input", numbers, true);
}

}  // namespace trainyard::models
