// The object that a scalar was meant for.
#pragma once

#include <functional>
#include <string>

#include "sim/json/fields.h"
#include "sim/json/value.h"

namespace trainyard::json {

// The object of a table that says by its first such key what the text says alone, as JSON:
// {"preset": "llama3-8b"} of "llama3-8b". Empty if no key has such a name.
std::string object_around(const Value& scalar, const std::function<void(Fields&)>& visit);

}  // namespace trainyard::json
