// What readers, schemas and references say alike of a field's bounds.
#pragma once

#include <string>

#include "sim/json/fields.h"

namespace trainyard::json {

// "at least 1 and at most 16", "above 0"; empty where anything goes.
std::string describe(const Bounds& bounds);

// Whether a file could say the target's present value: what nothing said stands for may be outside
// the bounds ("not stated", as 0 B/s) or an empty text.
bool can_be_said(const Bounds& bounds, const Target& target);

}  // namespace trainyard::json
