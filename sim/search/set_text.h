// How a change of a scenario is written on a command line.
#pragma once

#include <string>

#include "sim/json/value.h"

namespace trainyard::search {

// What --set takes to set a value: "parallelism.tp=4". A word stands without quotes where it is
// read as a word.
std::string set_text(const std::string& pointer, const json::Value& value);

}  // namespace trainyard::search
