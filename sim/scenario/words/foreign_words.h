// The tables of other frameworks' words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::scenario {

// A word as the tables write it: in small letters, with '_' for '-', '.' and ' ', without "torch.".
std::string plain_word(std::string_view word);

// Of a key: ours, by its pointer and perhaps with more words or the value before it, or another
// cure: "remove it: ...".
std::optional<std::string_view> foreign_key(std::string_view word);

// Of a key with a number: the degree of parallelism that it is.
std::optional<std::string_view> foreign_degree(std::string_view word);

// All that foreign_key() may answer.
std::vector<std::string_view> foreign_key_cures();

// Of a name that a choice does not know: ours, in quotes if there are more words.
std::optional<std::string_view> foreign_value(std::string_view word);

// Of a generation of network cards, its line rate.
std::optional<std::string_view> line_rate(std::string_view word);

}  // namespace trainyard::scenario
