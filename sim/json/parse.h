// From bytes to a Value, or to diagnostics that say where and why not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/json/value.h"

namespace trainyard::json {

struct Limits {
  std::size_t file_bytes = std::size_t{64} << 20;
  std::size_t string_bytes = std::size_t{64} << 10;
  std::size_t array_items = 10'000'000;
  std::size_t object_keys = 10'000;
  int depth = 64;
};

// Strict JSON (RFC 8259) with // and /* */ comments and an optional UTF-8 byte order mark.
// Duplicate keys are errors. After a syntax error the result is null and `diagnostics` has at least
// one error. No recursion.
Value parse_text(std::string_view text, const std::string& file,
                 std::vector<Diagnostic>& diagnostics, const Limits& limits = {});

// The same for a file: regular files only, size checked before reading.
Value parse_file(const std::string& path, std::vector<Diagnostic>& diagnostics,
                 const Limits& limits = {});

}  // namespace trainyard::json
