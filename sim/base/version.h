// The version of the program and of its results. CMake reads it from here.
#pragma once

#include <string_view>

namespace trainyard {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace trainyard
