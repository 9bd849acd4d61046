#include "models/layers/operator_kinds.h"

namespace trainyard::models {

// Source: PyTorch, derivatives.yaml.
Keeps activation_keeps(TableOp op) {
  switch (op) {
    case TableOp::relu:
    case TableOp::sigmoid:
    case TableOp::tanh: return Keeps::output;
    case TableOp::leaky_relu:
    case TableOp::elu: return Keeps::output_in_place;
    case TableOp::gelu:
    case TableOp::silu:
    case TableOp::relu6:
    case TableOp::hardswish:
    case TableOp::hardsigmoid:
    case TableOp::mish:
    case TableOp::softplus: return Keeps::input;
    default: return Keeps::nothing;
  }
}

bool is_activation(TableOp op) {
  return activation_keeps(op) != Keeps::nothing;
}

bool is_product(TableOp op) {
  return op == TableOp::linear || op == TableOp::gemm;
}

bool is_norm(TableOp op) {
  return op == TableOp::batch_norm || op == TableOp::group_norm || op == TableOp::layer_norm;
}

bool is_elementwise(TableOp op) {
  switch (op) {
    case TableOp::add:
    case TableOp::mul:
    case TableOp::elementwise:
    case TableOp::function:
    case TableOp::scale:
    case TableOp::shift:
    case TableOp::concat:
    case TableOp::copy:
    case TableOp::pad:
    case TableOp::reduce: return true;
    default: return false;
  }
}

}  // namespace trainyard::models
