#include "sim/json/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/check.h"
#include "sim/base/text.h"

namespace trainyard::json {
namespace {

Value of_kind(Kind kind) {
  Value value;
  value.kind = kind;
  return value;
}

// The decimal digits and the power of ten of a JSON number, "12.50e1" -> "1250", -1.
struct Decimal {
  bool negative = false;
  std::string digits;  // without leading zeros; empty for zero
  long exponent = 0;
};

Decimal decimal(std::string_view text) {
  Decimal out;
  std::size_t i = 0;
  if (i < text.size() && text[i] == '-') {
    out.negative = true;
    ++i;
  }
  bool fraction = false;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      fraction = true;
      continue;
    }
    if (!out.digits.empty() || text[i] != '0') out.digits += text[i];
    if (fraction) --out.exponent;
  }
  if (i < text.size()) {
    ++i;
    if (i < text.size() && text[i] == '+') ++i;
    long exponent = 0;
    const auto result = std::from_chars(text.data() + i, text.data() + text.size(), exponent);
    if (result.ec != std::errc()) exponent = text[i] == '-' ? -1'000'000 : 1'000'000;
    out.exponent += exponent;
  }
  while (out.exponent < 0 && !out.digits.empty() && out.digits.back() == '0') {
    out.digits.pop_back();
    ++out.exponent;
  }
  return out;
}

// A whole number's digits, or nothing if it has a fraction or more digits than 64 bits can hold.
std::optional<std::string> whole_digits(const Decimal& number) {
  if (number.digits.empty()) return "0";
  if (number.exponent < 0 || number.digits.size() + static_cast<std::size_t>(number.exponent) > 20)
    return std::nullopt;
  return number.digits + std::string(static_cast<std::size_t>(number.exponent), '0');
}

template <class Int>
std::optional<Int> from_text(const std::string& text) {
  Int value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

bool is_scalar(const Value& value) {
  return !value.is(Kind::array) && !value.is(Kind::object);
}

// A row of a table: an object of scalars, and several of them.
bool is_row(const Value& value) {
  return value.is(Kind::object) && value.members.size() > 1 &&
         std::all_of(value.members.begin(), value.members.end(),
                     [](const Member& member) { return is_scalar(member.value); });
}

std::string quoted_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out + '"';
}

constexpr std::size_t kLineLength = 90;
constexpr std::size_t kRowLength = 240;  // a table is easier to read in long lines than in columns

void write_item(const Value& item, int indent, int depth, std::string& out);

void write(const Value& value, int indent, int depth, std::string& out) {
  const auto line = [&](int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent * level), ' ');
  };
  if (value.is(Kind::null)) {
    out += "null";
  } else if (value.is(Kind::boolean)) {
    out += value.boolean ? "true" : "false";
  } else if (value.is(Kind::number)) {
    out += value.text;
  } else if (value.is(Kind::string)) {
    out += quoted_string(value.text);
  } else if (value.is(Kind::array)) {
    if (indent >= 0 && std::all_of(value.items.begin(), value.items.end(), is_scalar)) {
      std::string flat;
      write(value, -1, 0, flat);
      if (flat.size() + static_cast<std::size_t>(indent * depth) <= kLineLength) {
        out += flat;
        return;
      }
    }
    out += '[';
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      if (i > 0) out += indent < 0 ? ", " : ",";
      line(depth + 1);
      write_item(value.items[i], indent, depth + 1, out);
    }
    if (!value.items.empty()) line(depth);
    out += ']';
  } else {
    out += '{';
    for (std::size_t i = 0; i < value.members.size(); ++i) {
      if (i > 0) out += indent < 0 ? ", " : ",";
      line(depth + 1);
      out += quoted_string(value.members[i].key) + ": ";
      write(value.members[i].value, indent, depth + 1, out);
    }
    if (!value.members.empty()) line(depth);
    out += '}';
  }
}

void write_item(const Value& item, int indent, int depth, std::string& out) {
  if (indent >= 0 && is_row(item)) {
    std::string flat;
    write(item, -1, 0, flat);
    if (flat.size() + static_cast<std::size_t>(indent * depth) <= kRowLength) {
      out += flat;
      return;
    }
  }
  write(item, indent, depth, out);
}

std::optional<std::size_t> find_index(const std::string& token) {
  if (token.empty() || (token.size() > 1 && token[0] == '0') || token[0] == '-')
    return std::nullopt;
  return from_text<std::size_t>(token);
}

}  // namespace

Value::Value() noexcept = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::null: return "null";
    case Kind::boolean: return "true or false";
    case Kind::number: return "a number";
    case Kind::string: return "a string";
    case Kind::array: return "an array";
    case Kind::object: return "an object";
  }
  return "";
}

Place place_of(std::string file) {
  return {std::make_shared<const std::string>(std::move(file)), 0, 0};
}

const Value* Value::find(std::string_view key) const {
  const Member* member = find_member(key);
  return member != nullptr ? &member->value : nullptr;
}

Value* Value::find(std::string_view key) {
  for (Member& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const Member* Value::find_member(std::string_view key) const {
  for (const Member& member : members) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

Value& Value::set(std::string_view key, Value value) {
  TRAINYARD_CHECK(is(Kind::object), "only an object has members, not {}", name(kind));
  for (Member& member : members) {
    if (member.key == key) {
      member.at = value.at;
      member.value = std::move(value);
      return member.value;
    }
  }
  const Place place = value.at;
  members.push_back({std::string(key), place, std::move(value)});
  return members.back().value;
}

void Value::erase(std::string_view key) {
  const auto gone = std::find_if(members.begin(), members.end(),
                                 [&](const Member& member) { return member.key == key; });
  if (gone != members.end()) members.erase(gone);
}

Value& Value::append(Value value) {
  TRAINYARD_CHECK(is(Kind::array), "only an array has items, not {}", name(kind));
  items.push_back(std::move(value));
  return items.back();
}

Value Value::null() {
  return {};
}
Value Value::array() {
  return of_kind(Kind::array);
}
Value Value::object() {
  return of_kind(Kind::object);
}

Value Value::of(bool flag) {
  Value value = of_kind(Kind::boolean);
  value.boolean = flag;
  return value;
}

Value Value::of(std::string_view string) {
  Value value = of_kind(Kind::string);
  value.text = string;
  return value;
}

Value Value::of_name(std::string_view name) {
  return name == "true" || name == "false" ? of(name == "true") : of(name);
}

Value Value::of(std::int64_t number) {
  Value value = of_kind(Kind::number);
  value.text = std::to_string(number);
  return value;
}

Value Value::of(double number) {
  TRAINYARD_CHECK(std::isfinite(number), "JSON has no {}", number);
  Value value = of_kind(Kind::number);
  value.text = shortest(number);
  return value;
}

bool same(const Value& a, const Value& b) {
  if (a.kind != b.kind || a.boolean != b.boolean || a.text != b.text ||
      a.items.size() != b.items.size() || a.members.size() != b.members.size())
    return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!same(a.items[i], b.items[i])) return false;
  }
  return std::all_of(a.members.begin(), a.members.end(), [&](const Member& member) {
    const Value* other = b.find(member.key);
    return other != nullptr && same(member.value, *other);
  });
}

std::optional<std::int64_t> find_integer(const Value& value) {
  if (!value.is(Kind::number)) return std::nullopt;
  if (const auto plain = from_text<std::int64_t>(value.text)) return plain;
  const Decimal number = decimal(value.text);
  const std::optional<std::string> digits = whole_digits(number);
  if (!digits) return std::nullopt;
  return from_text<std::int64_t>(fmt::format("{}{}", number.negative ? "-" : "", *digits));
}

std::optional<std::uint64_t> find_unsigned(const Value& value) {
  if (!value.is(Kind::number)) return std::nullopt;
  const Decimal number = decimal(value.text);
  const std::optional<std::string> digits = whole_digits(number);
  if (!digits || (number.negative && *digits != "0")) return std::nullopt;
  return from_text<std::uint64_t>(*digits);
}

std::optional<double> find_number(const Value& value) {
  if (!value.is(Kind::number)) return std::nullopt;
  return from_text<double>(value.text);
}

void merge_patch(Value& target, const Value& patch) {
  if (!patch.is(Kind::object)) {
    target = patch;
    return;
  }
  if (!target.is(Kind::object)) {
    target = Value::object();
    target.at = patch.at;
  }
  for (const Member& member : patch.members) {
    if (member.value.is(Kind::null)) {
      target.erase(member.key);
      continue;
    }
    Value* old = target.find(member.key);
    if (old == nullptr) {
      target.members.push_back({member.key, member.at, Value::null()});
      old = &target.members.back().value;
    }
    merge_patch(*old, member.value);
  }
}

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

namespace {

// The token of a pointer that begins behind `at`, behind which it stands then. Keeps the memory of
// `token`.
void next_token(std::string_view pointer, std::size_t& at, std::string& token) {
  token.clear();
  if (pointer[at] == '/') ++at;
  for (; at < pointer.size() && pointer[at] != '/'; ++at) {
    const bool escaped = pointer[at] == '~' && at + 1 < pointer.size() &&
                         (pointer[at + 1] == '0' || pointer[at + 1] == '1');
    if (escaped) ++at;
    token += !escaped ? pointer[at] : pointer[at] == '0' ? '~' : '/';
  }
}

}  // namespace

std::vector<std::string> split_pointer(std::string_view pointer) {
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at < pointer.size();)
    next_token(pointer, at, tokens.emplace_back());
  return tokens;
}

const Value* find(const Value& root, std::string_view pointer) {
  const Value* value = &root;
  std::string token;
  for (std::size_t at = 0; at < pointer.size();) {
    next_token(pointer, at, token);
    if (value->is(Kind::array)) {
      const std::optional<std::size_t> i = find_index(token);
      if (!i || *i >= value->items.size()) return nullptr;
      value = &value->items[*i];
    } else {
      value = value->find(token);
      if (value == nullptr) return nullptr;
    }
  }
  return value;
}

bool set(Value& root, std::string_view pointer, Value value) {
  const std::vector<std::string> tokens = split_pointer(pointer);
  Value* at = &root;
  for (const std::string& token : tokens) {
    if (at->is(Kind::null)) {
      *at = Value::object();
      at->at = value.at;
    }
    if (at->is(Kind::array)) {
      const std::optional<std::size_t> i = find_index(token);
      if (!i || *i >= at->items.size()) return false;
      at = &at->items[*i];
    } else if (at->is(Kind::object)) {
      Value* next = at->find(token);
      if (next == nullptr) {
        Value fresh = Value::null();
        fresh.at = value.at;
        next = &at->set(token, std::move(fresh));
      }
      at = next;
    } else {
      return false;
    }
  }
  *at = std::move(value);
  return true;
}

std::string to_text(const Value& value, int indent) {
  std::string out;
  write(value, indent, 0, out);
  return out;
}

}  // namespace trainyard::json
