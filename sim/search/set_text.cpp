#include "sim/search/set_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/json/parse.h"

namespace trainyard::search {

std::string set_text(const std::string& pointer, const json::Value& value) {
  std::string key = pointer.substr(1);
  if (key.find_first_of(".~") != std::string::npos)
    key = pointer;
  else
    std::replace(key.begin(), key.end(), '/', '.');
  std::vector<Diagnostic> no_json;
  if (value.is(json::Kind::string)) json::parse_text(value.text, "", no_json);
  return fmt::format("{}={}", key, no_json.empty() ? json::to_text(value, -1) : value.text);
}

}  // namespace trainyard::search
