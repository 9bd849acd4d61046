#include "models/layers/operator_kinds.h"

namespace trainyard::models {

using Op = TableOp;

// Source: PyTorch, derivatives.yaml.
Keeps activation_keeps(Op op) {
  switch (op) {
    case Op::relu:
    case Op::sigmoid:
    case Op::tanh: return Keeps::output;
    case Op::leaky_relu:
    case Op::elu: return Keeps::output_in_place;
    case Op::gelu:
    case Op::silu:
    case Op::relu6:
    case Op::hardswish:
    case Op::hardsigmoid:
    case Op::mish:
    case Op::softplus: return Keeps::input;
    default: return Keeps::nothing;
  }
}

bool is_activation(Op op) {
  return activation_keeps(op) != Keeps::nothing;
}

bool is_product(Op op) {
  return op == Op::linear || op == Op::gemm;
}

bool is_norm(Op op) {
  return op == Op::batch_norm || op == Op::group_norm || op == Op::layer_norm;
}

bool is_elementwise(Op op) {
  switch (op) {
    case Op::add:
    case Op::mul:
    case Op::elementwise:
    case Op::function:
    case Op::scale:
    case Op::shift:
    case Op::concat:
    case Op::copy:
    case Op::pad:
    case Op::reduce: return true;
    default: return false;
  }
}

}  // namespace trainyard::models
