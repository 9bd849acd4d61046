// The parts of report.html that do not change, embedded at build time by assets/embed.cmake.
#pragma once

#include <string_view>

namespace trainyard::assets {

extern const std::string_view page;  // the shell with {{placeholders}}
extern const std::string_view style;
extern const std::string_view script;  // all .js files in one function
extern const std::string_view
    script_hash;  // "sha256-..." of `script`, for the content security policy

}  // namespace trainyard::assets
