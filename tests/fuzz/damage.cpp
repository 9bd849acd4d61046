#include "tests/fuzz/damage.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/json/parse.h"

namespace trainyard::fuzz {

using json::Kind;
using json::Value;

namespace {

constexpr std::array<const char*, 34> kNumbers = {"0",          "-0",
                                                  "-1",         "1",
                                                  "2",          "3",
                                                  "7",          "0.5",
                                                  "1e-300",     "4.9e-324",
                                                  "1e300",      "-1e300",
                                                  "1.7e308",    "1e999",
                                                  "1e18",       "1e9",
                                                  "1e12",       "100000",
                                                  "1048576",    "1000000000",
                                                  "2147483647", "2147483648",
                                                  "4294967296", "9007199254740993",
                                                  "0.9999999",  "1.0000001",
                                                  "-2.5",       "9223372036854775807",
                                                  "1e-30",      "1e30",
                                                  "65535",      "9223372036854775808",
                                                  "1e6",        "18446744073709551616"};
constexpr std::array<const char*, 18> kWords = {
    "",    " ",   "none", "auto", "null", "true", "1",   "../../etc/passwd", "\xff\xfe", "\x1b[31m",
    "nan", "inf", "8k",   "0B",   "-1us", "%s%n", "a/b", "\xe2\x80\xa8"};

// Every value below (and with) this one.
void collect(Value& value, std::vector<Value*>& values) {
  values.push_back(&value);
  for (json::Member& member : value.members)
    collect(member.value, values);
  for (Value& item : value.items)
    collect(item, values);
}

Value number(const char* text) {
  Value value;
  value.kind = Kind::number;
  value.text = text;
  return value;
}

// Another number, or one that is near to it.
Value other_number(const Value& value, Draw& draw) {
  const std::optional<std::int64_t> whole = json::find_integer(value);
  if (!whole || *whole < 0 || *whole > (1 << 20) || draw.chance(60))
    return number(draw.element(kNumbers));
  return Value::of(draw.pick({*whole + 1, 2 * *whole, *whole / 2, 10 * *whole, 3 * *whole}));
}

// "300GB/s" with another number before its unit, or another word.
std::string other_word(const std::string& word, Draw& draw) {
  const std::size_t unit = word.find_first_not_of("0123456789.eE+-");
  if (unit == 0 || draw.chance(15)) return draw.element(kWords);
  return draw.element(kNumbers) + (unit == std::string::npos ? "" : word.substr(unit));
}

Value nested(Value value, int depth) {
  for (int i = 0; i < depth; ++i) {
    Value outer = Value::array();
    outer.append(std::move(value));
    value = std::move(outer);
  }
  return value;
}

// A name that no file has, by which a key is written twice.
constexpr std::string_view kTwice = "written twice: ";

void double_key(Value& object, Draw& draw) {
  const json::Member& member = draw.element(object.members);
  const std::string key = std::string(kTwice) + member.key;
  object.set(key, Value(member.value));
}

void damage(Value& value, Draw& draw) {
  const int how = draw.between(0, 99);
  if (value.is(Kind::object) && !value.members.empty() && how < 60) {
    if (how < 30) return value.erase(std::string(draw.element(value.members).key));
    return double_key(value, draw);
  }
  if (value.is(Kind::array) && !value.items.empty() && how < 60) {
    if (how < 30) return value.items.pop_back();
    for (int copies = draw.pick({1, 2, 40}); copies > 0; --copies)
      value.append(Value(value.items.back()));
    return;
  }
  if (value.is(Kind::number) && how < 80) {
    value = other_number(value, draw);
  } else if (value.is(Kind::string) && how < 80) {
    value = Value::of(other_word(value.text, draw));
  } else if (how < 85) {
    value = nested(value, draw.pick({1, 2, 70}));
  } else {
    value = draw.pick({Value::null(), Value::of(true), Value::of(false), Value::of(""),
                       Value::array(), Value::object(), Value::of(-1)});
  }
}

// One line for a file of lines, so that each stays a value.
std::string damaged_json(const Value& whole, bool one_line, Draw& draw) {
  Value value = whole;
  std::vector<Value*> values;
  collect(value, values);
  // Numbers and words first: a file without a section is soon refused.
  Value* chosen = draw.element(values);
  for (int again = 0; again < 3 && (chosen->is(Kind::object) || chosen->is(Kind::array)); ++again)
    chosen = draw.element(values);
  damage(*chosen, draw);
  std::string text = json::to_text(value, one_line ? -1 : 2);
  for (std::size_t at; (at = text.find(kTwice)) != std::string::npos;)
    text.erase(at, kTwice.size());
  return text;
}

bool reads(const std::string& text, Value& value) {
  std::vector<Diagnostic> wrong;
  value = json::parse_text(text, "whole", wrong);
  return wrong.empty() && (value.is(Kind::object) || value.is(Kind::array));
}

std::string damaged_line(const std::string& text, Draw& draw) {
  const std::size_t at = draw.below(text.size());
  const std::size_t before = text.rfind('\n', at);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::size_t end = std::min(text.find('\n', at), text.size());
  const std::string line = begin < end ? text.substr(begin, end - begin) : "";
  std::string other;
  Value value;
  switch (draw.between(0, 4)) {
    case 0: break;
    case 1: other = line + "\n" + line; break;
    default:
      if (reads(line, value))
        other = damaged_json(value, true, draw);
      else if (const std::size_t digit = line.find_first_of("0123456789", draw.below(40));
               digit != std::string::npos)
        other = line.substr(0, digit) + draw.element(kNumbers) +
                line.substr(line.find_first_not_of("0123456789.", digit) == std::string::npos
                                ? line.size()
                                : line.find_first_not_of("0123456789.", digit));
  }
  return text.substr(0, begin) + other + text.substr(end);
}

std::string damaged_bytes(std::string text, Draw& draw) {
  using namespace std::string_view_literals;
  constexpr std::string_view kBytes = "{}[]\",:0123456789eE+-.\\/ntf\x01\x80\xFF\n\t\0"sv;
  const std::size_t at = draw.below(text.size());
  const std::size_t length = 1 + draw.below(12);
  switch (draw.between(0, 6)) {
    case 0: text.erase(at, length); break;
    case 1: text.insert(at, text.substr(draw.below(text.size()), length)); break;
    case 2: text[at] = kBytes[draw.below(kBytes.size())]; break;
    case 3: text[at] = static_cast<char>(text[at] ^ (1 << draw.between(0, 7))); break;
    case 4: text.resize(at); break;
    case 5:
      text.insert(at, std::string(draw.pick({100, 5000}), draw.pick({'[', '9', ' ', 'a'})));
      break;
    default: text.replace(at, length, text.substr(draw.below(text.size()), length)); break;
  }
  return text;
}

}  // namespace

std::string damaged(std::string text, Draw& draw) {
  for (int mistakes = draw.pick({1, 1, 1, 1, 1, 2, 2, 4}); mistakes > 0 && !text.empty();
       --mistakes) {
    Value value;
    if (draw.chance(80) && reads(text, value))
      text = damaged_json(value, false, draw) + "\n";
    else if (draw.chance(60))
      text = damaged_line(text, draw);
    else
      text = damaged_bytes(std::move(text), draw);
  }
  return text;
}

}  // namespace trainyard::fuzz
