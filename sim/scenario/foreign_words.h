// The tables of other frameworks' words.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainyard::scenario {

// A word as the tables write it: in small letters, with '_' for '-', '.' and ' ', without "torch.".
std::string plain_word(std::string_view word);

// Of a key: the pointer of ours, else what to do instead.
std::optional<std::string_view> foreign_key(std::string_view word);

// Of a name that a choice does not know: ours, else what to do instead.
std::optional<std::string_view> foreign_value(std::string_view word);

// Of a generation of network cards, its line rate.
std::optional<std::string_view> line_rate(std::string_view word);

}  // namespace trainyard::scenario
