// Checks for mistakes of ours, on in every build. Mistakes of the user raise ScenarioError instead.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace trainyard {
[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const std::string& why) {
  fmt::print(stderr, "{}:{}: check failed: {}: {}\n", file, line, condition, why);
  std::abort();
}
}  // namespace trainyard

#define TRAINYARD_CHECK(condition, ...)                                                    \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      ::trainyard::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
    }                                                                                      \
  } while (false)
