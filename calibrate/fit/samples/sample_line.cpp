#include "calibrate/fit/samples/sample_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/text.h"
#include "sim/json/reader.h"

namespace trainyard::fit {
namespace {

// No count, time or size of a machine is larger; more is a mistake of whoever wrote the file, and
// products of three of them still fit into a double.
constexpr std::int64_t kMostCount = std::int64_t{1} << 50;
constexpr std::int64_t kMostThings = 1'000'000;
constexpr double kMostNumber = 1e15;

std::string spelled(std::string_view word) {
  std::string text(word);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace

void SampleLine::error(std::string_view key, std::string message, std::string hint) {
  Diagnostic diagnostic;
  diagnostic.at = at_;
  if (const json::Value* value = object_.find(key)) diagnostic.at.column = value->at.column;
  diagnostic.pointer = key.empty() ? "" : "/" + json::escape_pointer(key);
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  diagnostics_.push_back(std::move(diagnostic));
}

const json::Value* SampleLine::take(std::string_view key, Need need) {
  const json::Value* value = object_.find(key);
  if (value != nullptr && value->is(json::Kind::null)) value = nullptr;
  if (value == nullptr && need == required) error(key, "is missing");
  return value;
}

std::string SampleLine::text(std::string_view key, Need need, std::string otherwise) {
  const json::Value* value = take(key, need);
  if (value == nullptr) return otherwise;
  if (value->is(json::Kind::string)) return value->text;
  error(key, "expected a string, got " + json::quoted(*value));
  return otherwise;
}

std::int64_t SampleLine::integer(std::string_view key, std::int64_t least, Need need,
                                 std::int64_t otherwise) {
  const json::Value* value = take(key, need);
  if (value == nullptr) return otherwise;
  const std::optional<std::int64_t> number = json::find_integer(*value);
  if (number && *number >= least && *number <= kMostCount) return *number;
  error(key,
        fmt::format("expected a whole number from {} on, got {}", least, json::quoted(*value)));
  return otherwise;
}

int SampleLine::count(std::string_view key, int least, Need need, int otherwise) {
  const std::int64_t value = integer(key, least, need, otherwise);
  if (value <= kMostThings) return static_cast<int>(value);
  error(key, fmt::format("expected at most {}, got {}", kMostThings, value));
  return otherwise;
}

double SampleLine::number(std::string_view key, double least, Need need, double otherwise) {
  const json::Value* value = take(key, need);
  if (value == nullptr) return otherwise;
  const std::optional<double> number = json::find_number(*value);
  if (number && std::isfinite(*number) && *number >= least && *number <= kMostNumber)
    return *number;
  error(key, fmt::format("expected a number from {} on, got {}", least, json::quoted(*value)));
  return otherwise;
}

double SampleLine::positive(std::string_view key, Need need) {
  const double value = number(key, 0, need, need == required ? 1 : 0);
  // A time of zero is a clock that did not run.
  if (value < 1e-9 && find(key) != nullptr && json::find_number(*find(key)))
    error(key, "is not positive: " + json::quoted(*find(key)));
  return value;
}

bool SampleLine::flag(std::string_view key, Need need, bool otherwise) {
  const json::Value* value = take(key, need);
  if (value == nullptr) return otherwise;
  if (value->is(json::Kind::boolean)) return value->boolean;
  error(key, "expected true or false, got " + json::quoted(*value));
  return otherwise;
}

std::string SampleLine::word(std::string_view key, const std::vector<std::string_view>& words,
                             Need need, std::string_view otherwise) {
  const json::Value* value = take(key, need);
  if (value == nullptr) return std::string(otherwise);
  if (value->is(json::Kind::string)) {
    for (const std::string_view word : words)
      if (spelled(word) == spelled(value->text)) return std::string(word);
  }
  std::string hint;
  if (const auto near = find_nearest(value->text, words))
    hint = fmt::format("did you mean '{}'?", *near);
  error(key,
        fmt::format("expected one of {}, got {}", fmt::join(words, ", "), json::quoted(*value)),
        hint);
  return std::string(words.begin() == words.end() ? otherwise : *words.begin());
}

}  // namespace trainyard::fit
