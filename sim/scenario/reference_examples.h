// Examples of keys whose type alone suggests none.
#pragma once

#include <string_view>

namespace trainyard::scenario {

// As JSON; empty: none is known. `pointer` has "0" for any place of an array, and may begin with a
// kind: "recommender:/model/preset".
std::string_view find_example(std::string_view pointer);

}  // namespace trainyard::scenario
