// What operations of a table have in common.
#pragma once

#include <cstdint>

#include "models/layers/layer_table.h"

namespace trainyard::models {

// What an activation keeps for its backward pass; nothing: it is none.
enum class Keeps : std::uint8_t { nothing, input, output, output_in_place };
Keeps activation_keeps(TableOp op);

bool is_activation(TableOp op);
bool is_product(TableOp op);  // with weights
bool is_norm(TableOp op);
// It reads all inputs, writes its output, and that is all.
bool is_elementwise(TableOp op);

}  // namespace trainyard::models
