// What is said of an input that is absent, or no such file.
#pragma once

#include <string>
#include <utility>

#include "sim/base/diagnostic.h"

namespace trainyard::cli {

// Throws ScenarioError: "none.csv: error: cannot be read".
[[noreturn]] inline void fail_input(const std::string& path, std::string why) {
  throw ScenarioError({{Severity::error, {path, 0, 0}, "", std::move(why), ""}});
}

}  // namespace trainyard::cli
