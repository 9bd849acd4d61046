#include "sim/scenario/words/translations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "sim/scenario/words/foreign_words.h"

namespace trainyard::scenario {

namespace {

using json::Kind;
using json::Value;

// A section of ours is a degree elsewhere: a number there tells which is meant.
std::string cure_of_degree(const std::string& pointer, const Value* value) {
  if (value == nullptr || !value->is(Kind::number)) return {};
  const std::optional<std::string_view> degree =
      foreign_degree(json::split_pointer(pointer).back());
  return degree ? fmt::format("write {}", *degree) : "";
}

std::string cure_of_key(const std::string& pointer, const Value* value) {
  if (std::string degree = cure_of_degree(pointer, value); !degree.empty()) return degree;
  const std::optional<std::string_view> cure = foreign_key(json::split_pointer(pointer).back());
  if (!cure) return {};
  const bool is_ours = (*cure)[0] == '/' || (*cure)[0] == '"';
  return fmt::format("{}{}", is_ours ? "write " : "", *cure);
}

// "8k": 8192; "1M" of tokens is a million. Empty: no such number.
std::string cure_of_number(std::string_view text) {
  long long number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit = plain_word(text.substr(static_cast<std::size_t>(end.ptr - text.data())));
  constexpr long long kMost = 1'000'000;
  if (end.ec != std::errc() || number < 1 || number > kMost) return {};
  if (unit.empty()) return fmt::format("write {} without quotes", number);
  if (unit == "k" || unit == "ki")
    return fmt::format("write {}, or {}", number * 1024, number * 1000);
  if (unit == "m" || unit == "mi")
    return fmt::format("write {}, or {}", number << 20, number * 1'000'000);
  if (unit == "b") return fmt::format("write {}e9", number);
  if (unit == "t") return fmt::format("write {}e12", number);
  return {};
}

// "10GbE", "100 GigE", "HDR".
std::string cure_of_bandwidth(std::string_view text) {
  if (const auto network = line_rate(text)) return fmt::format("write \"{}\"", *network);
  long long number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit = plain_word(text.substr(static_cast<std::size_t>(end.ptr - text.data())));
  std::replace(unit.begin(), unit.end(), '_', ' ');
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? 0 : unit.find_first_not_of(' '));
  constexpr std::array<std::string_view, 6> kEthernet = {
      "gbe", "gige", "gb ethernet", "gbit ethernet", "g ethernet", "gbit"};
  if (end.ec == std::errc() &&
      std::find(kEthernet.begin(), kEthernet.end(), unit) != kEthernet.end())
    return fmt::format("write \"{}Gbps\"", number);
  return {};
}

// Whether a choice has the name, as far as its hint lists what it has.
bool may_have(const std::string& hint, std::string_view name) {
  constexpr std::string_view kKnown = "known: ";
  const std::size_t at = hint.find(kKnown);
  if (at == hint.npos) return true;
  const std::string listed = fmt::format(", {},", hint.substr(at + kKnown.size()));
  return listed.find(fmt::format(" {},", name)) != listed.npos;
}

std::string cure_of_value(const Diagnostic& diagnostic, const Value& value) {
  const std::string& message = diagnostic.message;
  if (message.starts_with("unknown ")) {
    const std::optional<std::string_view> ours = foreign_value(value.text);
    if (ours && (*ours)[0] == '"') return fmt::format("write {}", *ours);
    if (ours && may_have(diagnostic.hint, *ours)) return fmt::format("write \"{}\"", *ours);
  }
  if (message.starts_with("expected a whole number") || message.starts_with("expected a number"))
    return cure_of_number(value.text);
  if (message.find("bandwidth") != std::string::npos) return cure_of_bandwidth(value.text);
  return {};
}

}  // namespace

void translate(const Value& document, std::vector<Diagnostic>& diagnostics) {
  for (Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.severity != Severity::error) continue;
    if (diagnostic.pointer.empty()) continue;
    const Value* value = json::find(document, diagnostic.pointer);
    std::string cure;
    if (diagnostic.message == "unknown key")
      cure = cure_of_key(diagnostic.pointer, value);
    else if (value != nullptr && value->is(Kind::string))
      cure = cure_of_value(diagnostic, *value);
    else if (diagnostic.message.starts_with("expected an object, got "))
      cure = cure_of_degree(diagnostic.pointer, value);
    if (!cure.empty()) diagnostic.hint = std::move(cure);
  }
}

}  // namespace trainyard::scenario
