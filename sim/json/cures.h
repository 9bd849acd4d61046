// What to write instead of a wrong key, a wrong name or words without a list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/json/reader.h"
#include "sim/json/value.h"

namespace trainyard::json {

std::string joined(std::span<const std::string_view> names);  // "a, b, c"

// "did you mean ...? known: a, b, c" for a wrong name.
std::string cure_of_name(std::string_view word, std::span<const std::string_view> names);

// For a key that the object at `section` does not have: those of its own `here` that may be meant,
// else where it belongs.
std::string cure_of_key(std::string_view key, const std::vector<std::string_view>& here,
                        std::string_view section, const KeyIndex* known);

// For words that should be a list: [mlp], as a shell leaves of ["mlp"], or mlp alone.
std::string array_of_words(const Value& value);

bool holds(const KeyIndex& known, std::string_view key, std::string_view section);

}  // namespace trainyard::json
