// Damage to texts: what a slip, a torn file or somebody hostile makes of them.
#pragma once

#include <string>

#include "tests/fuzz/draw.h"

namespace trainyard::fuzz {

// The text with one to four mistakes in it: bytes, lines, and in JSON numbers, units, keys and
// nesting.
std::string damaged(std::string text, Draw& draw);

}  // namespace trainyard::fuzz
