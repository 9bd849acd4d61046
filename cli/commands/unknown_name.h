// What is said of a name that nothing has.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trainyard::cli {

// Throws UsageError: "no GPU is called 'a1000'; the nearest are a10, a10g, a40", of the three
// nearest of those known. `option`: where it was said, "--gpu"; empty: left out.
[[noreturn]] void fail_unknown(std::string_view what, std::string_view name,
                               std::span<const std::string> known, std::string_view option = {});

}  // namespace trainyard::cli
