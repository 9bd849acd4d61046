// Makes the JSON value of a struct by its field table: what a Reader reads back equal.
#pragma once

#include <functional>

#include "sim/json/fields.h"
#include "sim/json/value.h"

namespace trainyard::json {

// An object with the fields that `visit` names, in its order. Optional fields without a value and
// empty optional arrays are left out.
Value object_of(const std::function<void(Fields&)>& visit);

}  // namespace trainyard::json
