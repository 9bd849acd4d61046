// What readers, schemas and references say alike of a field's bounds.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/json/fields.h"

namespace trainyard::json {

// "at least 1 and at most 16", "above 0"; empty where anything goes.
std::string describe(const Bounds& bounds);

// The same of a quantity, as files write it: "at least 1MB/s and at most 1000000TB/s".
std::string describe(const Bounds& bounds, const Target& target);

// Whether a file could say the target's present value: what nothing said stands for may be outside
// the bounds ("not stated", as 0 B/s) or an empty text.
bool can_be_said(const Bounds& bounds, const Target& target);

// The place of a word among the names of a choice, where hyphen and underscore are the same letter.
std::optional<std::size_t> find_name(std::string_view word,
                                     std::span<const std::string_view> names);

}  // namespace trainyard::json
