// What is said of a name that nothing has, and of a file that is not there.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trainyard::cli {

// Throws UsageError: "no GPU is called 'a1000'; the nearest are a10, a10g, a40", of the three
// nearest of those known. `option`: where it was said, "--gpu"; empty: left out.
[[noreturn]] void fail_unknown(std::string_view what, std::string_view name,
                               std::span<const std::string> known, std::string_view option = {});

// Throws ScenarioError: "none.csv: error: cannot be read".
[[noreturn]] void fail_input(const std::string& path, std::string why);

}  // namespace trainyard::cli
