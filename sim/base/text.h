// Text helpers shared by readers and reports: suggestions, escaping, and numbers with units.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace trainyard {

// Levenshtein distance in bytes. O(|a| * |b|).
int edit_distance(std::string_view a, std::string_view b);

// The known name nearest to `word`, if it is near enough to be a slip of the keyboard
// (distance at most a third of the longer word, and at least 1).
std::optional<std::string_view> find_nearest(std::string_view word,
                                             std::span<const std::string_view> known);

// All of them that are as near as that one.
std::vector<std::string_view> find_all_nearest(std::string_view word,
                                               std::span<const std::string_view> known);

// The longest known name that is words of `word`, which '_' joins: "heads" of "num_heads".
std::optional<std::string_view> find_part(std::string_view word,
                                          std::span<const std::string_view> known);

// Up to `count` known names, nearest first, however far they are.
std::vector<std::string_view> nearest(std::string_view word,
                                      std::span<const std::string_view> known, std::size_t count);

// The same for names of things, of which people leave out the end: "dgx-a100" is one
// of the names that hold it, "dgx-a100-80gb", and not "dgx-h100".
std::vector<std::string_view> nearest_names(std::string_view word,
                                            std::span<const std::string_view> known,
                                            std::size_t count);

// Those of them that are near: that hold the word, or of whose letters at least half are its own.
std::vector<std::string_view> near_names(std::string_view word,
                                         std::span<const std::string_view> known,
                                         std::size_t count);

// Control bytes, escape sequences and bidirectional overrides as \xNN, so that no text of a file
// can drive a terminal. Valid UTF-8 otherwise passes unchanged.
std::string escape_control(std::string_view text);

// For people: "1.42 s", "35.1 ms", "59.3 GiB". Three significant digits, no exponent.
std::string to_text(Duration duration);
std::string to_text(Bytes bytes);

// The shortest decimal that reads back as the same double ("0.1", "1e+22"), same on every machine.
std::string shortest(double value);

}  // namespace trainyard
