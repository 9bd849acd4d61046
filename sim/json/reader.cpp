#include "sim/json/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/json/cures.h"
#include "sim/json/field_words.h"
#include "sim/json/object_around.h"
#include "sim/json/quantity.h"

namespace trainyard::json {
namespace {

constexpr std::size_t kQuotedLength = 60;

// Reads one scalar. The result is a message, empty if all is well.
struct ScalarReader {
  const Value& value;
  const Bounds& bounds;

  std::string operator()(bool* target) const {
    if (!value.is(Kind::boolean)) return expected("true or false");
    *target = value.boolean;
    return {};
  }
  std::string operator()(std::string* target) const {
    if (!value.is(Kind::string)) return expected("a string");
    *target = value.text;
    return {};
  }
  std::string operator()(int* target) const {
    const std::optional<std::int64_t> number = find_integer(value);
    if (!number) return whole_problem();
    if (!bounds.hold(static_cast<double>(*number))) return out_of_bounds();
    if (*number > std::numeric_limits<int>::max() || *number < std::numeric_limits<int>::min())
      return fmt::format("{} is too large", value.text);
    *target = static_cast<int>(*number);
    return {};
  }
  std::string operator()(std::int64_t* target) const {
    const std::optional<std::int64_t> number = find_integer(value);
    if (!number) return whole_problem();
    if (!bounds.hold(static_cast<double>(*number))) return out_of_bounds();
    *target = *number;
    return {};
  }
  std::string operator()(std::uint64_t* target) const {
    const std::optional<std::uint64_t> number = find_unsigned(value);
    if (!number) return whole_problem();
    *target = *number;
    return {};
  }
  std::string operator()(double* target) const {
    const std::optional<double> number = find_number(value);
    if (!number) return expected("a number");
    if (!bounds.hold(*number)) return out_of_bounds();
    *target = *number;
    return {};
  }
  std::string operator()(Bytes* target) const { return quantity(target, parse_bytes); }
  std::string operator()(Duration* target) const { return quantity(target, parse_duration); }
  std::string operator()(Seconds* target) const { return quantity(target, parse_seconds); }
  std::string operator()(BytesPerSecond* target) const { return quantity(target, parse_bandwidth); }
  std::string operator()(FlopsPerSecond* target) const {
    return quantity(target, parse_compute_rate);
  }
  std::string operator()(Watts* target) const { return quantity(target, parse_power); }

 private:
  std::string expected(std::string_view what) const {
    return fmt::format("expected {}, got {}", what, quoted(value));
  }
  std::string out_of_bounds() const {
    return fmt::format("expected {}, got {}", describe(bounds), quoted(value));
  }
  std::string whole_problem() const {
    const std::optional<double> number = find_number(value);
    if (number && std::abs(*number) >= 0x1p63)
      return fmt::format("{} does not fit 64 bits", quoted(value));
    // Of a whole number's target that takes it there is no problem: this one takes none below 0.
    const bool below_zero = number && *number < 0 && *number == std::floor(*number);
    return expected(below_zero ? "a whole number from 0 on" : "a whole number");
  }
  template <class T, class Parse>
  std::string quantity(T* target, Parse parse) const {
    if (value.is(Kind::number)) return missing_unit(value.text, target);
    if (!value.is(Kind::string)) return expected("a quantity with its unit");
    const Parsed<T> parsed = parse(value.text);
    if (!parsed.ok()) return parsed.problem;
    if (!bounds.hold(static_cast<double>(parsed.value.count())))
      return expected(describe(bounds, Target(target)));
    *target = parsed.value;
    return {};
  }
};

}  // namespace

std::string quoted(const Value& value) {
  if (value.is(Kind::boolean)) return value.boolean ? "true" : "false";
  if (!value.is(Kind::string) && !value.is(Kind::number)) return std::string(name(value.kind));
  std::string text = value.text;
  if (text.size() > kQuotedLength) {
    std::size_t end = kQuotedLength;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
      --end;
    text = text.substr(0, end) + "...";
  }
  return value.is(Kind::string) ? fmt::format("\"{}\"", text) : text;
}

Reader::Reader(const Value& object, std::string pointer, std::vector<Diagnostic>& diagnostics,
               const KeyIndex* known)
    : object_(object), pointer_(std::move(pointer)), diagnostics_(diagnostics), known_(known) {}

bool Reader::check_object() {
  if (object_.is(Kind::object)) return true;
  error(object_.at, "", fmt::format("expected an object, got {}", quoted(object_)));
  return false;
}

void Reader::finish() {
  if (!object_.is(Kind::object)) return;
  for (const Member& member : object_.members) {
    if (member.key.substr(0, 2) == "x-") continue;
    if (std::find(asked_.begin(), asked_.end(), member.key) == asked_.end()) unknown_key(member);
  }
}

void Reader::unknown_key(const Member& member) {
  std::vector<std::string_view> here;
  for (const std::string& key : asked_)
    if (std::find(refused_.begin(), refused_.end(), key) == refused_.end()) here.push_back(key);
  const std::string hint = !patch_.empty() && known_ != nullptr && holds(*known_, member.key, "")
                               ? fmt::format("write it under \"{}\"", patch_)
                               : cure_of_key(member.key, here, pointer_, known_);
  error(member.at, member.key, "unknown key", hint);
  diagnostics_.back().harmless = true;
}

void Reader::unknown_name(const FieldInfo& info, const Value& value,
                          std::span<const std::string_view> names) {
  const bool later = find_name(value.text, not_yet_).has_value();
  const bool in_list = info.key.find_first_not_of("0123456789") == std::string_view::npos;
  not_yet_.clear();
  if (later)
    error(value.at, info.key, fmt::format("{} is not supported yet", quoted(value)),
          "available: " + joined(names));
  else
    error(value.at, info.key,
          fmt::format("unknown {} {}", in_list ? "name" : info.key, quoted(value)),
          cure_of_name(value.text, names));
}

std::string Reader::pointer_to(std::string_view key) const {
  return key.empty() ? pointer_ : pointer_ + "/" + escape_pointer(key);
}

void Reader::error(const Place& at, std::string_view key, std::string message, std::string hint) {
  diagnostics_.push_back(
      {Severity::error, at.position(), pointer_to(key), std::move(message), std::move(hint)});
}

void Reader::error_at(const Place& at, std::string pointer, std::string message) {
  diagnostics_.push_back(
      {Severity::error, at.position(), std::move(pointer), std::move(message), ""});
}

const Value* Reader::take(const FieldInfo& info) {
  asked_.emplace_back(info.key);
  const Value* value = object_.is(Kind::array) ? json::find(object_, fmt::format("/{}", info.key))
                                               : object_.find(info.key);
  if (value != nullptr && value->is(Kind::null) && info.need == Need::optional) return nullptr;
  if (value == nullptr && info.need == Need::required && object_.is(Kind::object))
    error(object_.at, info.key, "is required and missing", std::string(info.about));
  return value;
}

bool Reader::scalar(const FieldInfo& info, Target target) {
  const Value* value = take(info);
  if (value == nullptr) return false;
  const std::string problem = std::visit(ScalarReader{*value, info.bounds}, target);
  if (!problem.empty()) error(value->at, info.key, problem);
  return problem.empty();
}

bool Reader::maybe(const FieldInfo& info, Target target, bool) {
  return scalar(info, target);
}

bool Reader::choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                       std::size_t& chosen) {
  const Value* value = take(info);
  if (value == nullptr) return false;
  const std::optional<std::size_t> found =
      find_name(value->is(Kind::boolean) ? quoted(*value) : value->text, names);
  // The names true and false are JSON's own, and not strings.
  if (found && Value::of_name(names[*found]).kind == value->kind) {
    chosen = *found;
    return true;
  }
  if (value->is(Kind::string))
    unknown_name(info, *value, names);
  else
    error(value->at, info.key,
          fmt::format("expected one of {}, got {}", joined(names), quoted(*value)));
  return false;
}

void Reader::alternatives(const FieldInfo& info, std::span<const std::string_view> names,
                          std::size_t& chosen, const std::function<void(Fields&)>& visit_chosen) {
  const Value* given = object_.find(info.key);
  const bool is_left_out = info.need == Need::optional && object_.is(Kind::object) &&
                           (given == nullptr || given->is(Kind::null));
  if (choice_of(info, names, chosen) || is_left_out) {
    visit_chosen(*this);
    return;
  }
  // Without the kind the other keys cannot be judged.
  for (const Member& member : object_.members)
    asked_.push_back(member.key);
}

bool Reader::numbers_or_name(const FieldInfo& info, std::span<const std::string_view> names,
                             std::string& name, std::vector<int>& numbers) {
  const Value* value = take(info);
  if (value == nullptr) return false;
  if (value->is(Kind::string)) {
    const std::optional<std::size_t> found = find_name(value->text, names);
    if (!found) {
      unknown_name(info, *value, names);
      return false;
    }
    name = names[*found];
    numbers.clear();
    return true;
  }
  if (!value->is(Kind::array)) {
    error(value->at, info.key,
          fmt::format("expected one of {} or an array of whole numbers, got {}", joined(names),
                      quoted(*value)));
    return false;
  }
  std::vector<int> read(value->items.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    const std::string problem = ScalarReader{value->items[i], info.bounds}(&read[i]);
    if (problem.empty()) continue;
    error_at(value->items[i].at, fmt::format("{}/{}", pointer_to(info.key), i), problem);
    return false;
  }
  name.clear();
  numbers = std::move(read);
  return true;
}

bool Reader::nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) {
  const Value* value = take(info);
  if (value == nullptr || value->refused) return false;
  if (!value->is(Kind::object)) {
    const std::string meant = object_around(*value, visit);
    error(value->at, info.key, fmt::format("expected an object, got {}", quoted(*value)),
          meant.empty() ? "" : "write " + meant);
    return false;
  }
  Reader child(*value, pointer_to(info.key), diagnostics_, known_);
  visit(child);
  child.finish();
  return true;
}

bool Reader::nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>& visit) {
  return nested(info, visit);  // names were expanded before reading
}

bool Reader::name_or_nested(const FieldInfo& info, std::span<const std::string_view> names,
                            std::string& name, const std::function<void(Fields&)>& visit) {
  const Value* value = take(info);
  if (value == nullptr || value->refused) return false;
  if (value->is(Kind::object)) {
    name.clear();
    Reader child(*value, pointer_to(info.key), diagnostics_, known_);
    visit(child);
    child.finish();
    return true;
  }
  if (!value->is(Kind::string)) {
    error(value->at, info.key,
          fmt::format("expected one of {} or an object, got {}", joined(names), quoted(*value)));
    return false;
  }
  const std::optional<std::size_t> found = find_name(value->text, names);
  if (!found) {
    unknown_name(info, *value, names);
    return false;
  }
  name = names[*found];
  return true;
}

bool Reader::array(const FieldInfo& info, std::size_t,
                   const std::function<void(std::size_t)>& resize,
                   const std::function<void(Fields&, std::string_view, std::size_t)>& visit) {
  const Value* value = take(info);
  if (value == nullptr) return false;
  const bool is_one =
      info.words ? value->is(Kind::string) : value->is(Kind::object) || value->is(Kind::number);
  if (info.one_too && is_one) {
    resize(1);
    Reader here(object_, pointer_, diagnostics_, known_);
    visit(here, info.key, 0);
    return true;
  }
  if (!value->is(Kind::array)) {
    error(value->at, info.key, fmt::format("expected an array, got {}", quoted(*value)),
          info.words ? array_of_words(*value) : "");
    return false;
  }
  if (info.words && value->items.empty()) {
    error(value->at, info.key, "names nothing", "name one or more, or remove it");
    return false;
  }
  resize(value->items.size());
  Reader child(*value, pointer_to(info.key), diagnostics_, known_);
  for (std::size_t i = 0; i < value->items.size(); ++i)
    visit(child, std::to_string(i), i);
  return true;
}

bool Reader::members(const FieldInfo& info, const std::vector<std::string>&,
                     const std::function<void(const std::vector<std::string>&)>& rename,
                     const std::function<void(Fields&, std::string_view, std::size_t)>& visit) {
  const Value* value = take(info);
  if (value == nullptr) return false;
  if (!value->is(Kind::object)) {
    error(value->at, info.key, fmt::format("expected an object, got {}", quoted(*value)));
    return false;
  }
  std::vector<std::string> names;
  for (const Member& member : value->members)
    names.push_back(member.key);
  rename(names);
  Reader child(*value, pointer_to(info.key), diagnostics_, known_);
  for (std::size_t i = 0; i < names.size(); ++i)
    visit(child, names[i], i);
  return true;
}

void Reader::unsupported(std::string_view key, std::string_view what,
                         std::initializer_list<std::string_view> harmless) {
  asked_.emplace_back(key);
  if (harmless.size() == 0) refused_.emplace_back(key);
  const Value* value = object_.find(key);
  if (value == nullptr || value->is(Kind::null)) return;
  const std::string text = to_text(*value, -1);
  if (std::find(harmless.begin(), harmless.end(), text) != harmless.end()) return;
  const std::size_t split = what.find("; ");
  error(value->at, key, std::string(what.substr(0, split)) + " is not supported yet",
        split == std::string_view::npos ? "" : std::string(what.substr(split + 2)));
}

void Reader::not_yet(std::initializer_list<std::string_view> names) {
  not_yet_ = names;
}
void Reader::accepted(std::string_view key, std::string_view, bool is_patch) {
  asked_.emplace_back(key);
  if (is_patch) patch_ = key;
}
void Reader::source(const FieldInfo& info) {
  asked_.emplace_back(info.key);
}

void Reader::problem(std::string_view key, std::string message, std::string hint) {
  const Value* value =
      key.empty() ? &object_ : json::find(object_, fmt::format("/{}", escape_pointer(key)));
  error(value != nullptr ? value->at : object_.at, key, std::move(message), std::move(hint));
}

}  // namespace trainyard::json
