// What becomes of a key of config.json that no family reads. The first rule that holds decides:
//
//   its value is null, false, 0 or empty          it is off
//   it stands in the table of harmless keys       names and ids of tokens, initial values,
//   epsilons,
//                                                 positions' angles, generation, losses, number
//                                                 formats
//   a word of its name counts or shapes layers    an error: the network may be another one
//   none of these                                 a warning
#pragma once

#include <string_view>

#include "sim/json/value.h"

namespace trainyard::scenario {

bool is_off(const json::Value& value);
bool is_harmless_key(std::string_view key);
bool may_change_network(std::string_view key);

}  // namespace trainyard::scenario
