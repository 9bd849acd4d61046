#include "sim/scenario/topics/model/hugging_face/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/json/reader.h"
#include "sim/scenario/topics/model/hugging_face/known_keys.h"

namespace trainyard::scenario {

using json::Value;

std::vector<std::string_view> names_in(std::string_view keys) {
  std::vector<std::string_view> names;
  while (!keys.empty()) {
    const std::size_t end = std::min(keys.find('|'), keys.size());
    names.push_back(keys.substr(0, end));
    keys.remove_prefix(std::min(end + 1, keys.size()));
  }
  return names;
}

const Value* HuggingFaceConfig::find(std::string_view keys) {
  const Value* found = nullptr;
  std::string_view found_as;
  for (const std::string_view key : names_in(keys)) {
    asked_.emplace_back(key);
    const Value* value = object_.find(key);
    if (value == nullptr || value->is(json::Kind::null)) continue;
    if (found != nullptr && !json::same(*found, *value))
      error(
          value->at, key,
          fmt::format("{} here and {} as {}", json::quoted(*value), json::quoted(*found), found_as),
          "both name one thing; remove one of them");
    if (found == nullptr) {
      found = value;
      found_as = key;
    }
  }
  return found;
}

std::optional<bool> HuggingFaceConfig::flag(std::string_view keys) {
  const Value* value = find(keys);
  if (value == nullptr) return {};
  if (!value->is(json::Kind::boolean)) wrong_type(*value, keys, "true or false");
  return value->boolean;
}

std::optional<double> HuggingFaceConfig::number(std::string_view keys) {
  const Value* value = find(keys);
  if (value == nullptr) return {};
  const std::optional<double> number = json::find_number(*value);
  if (!number) wrong_type(*value, keys, "a number");
  return number;
}

std::optional<std::int64_t> HuggingFaceConfig::count(std::string_view keys) {
  const Value* value = find(keys);
  if (value == nullptr) return {};
  const std::optional<std::int64_t> number = json::find_integer(*value);
  if (!number || *number < 0 || *number > 1'000'000'000) {
    wrong_type(*value, keys, "a whole number up to 1e9");
    return {};
  }
  return number;
}

const Value* HuggingFaceConfig::list(std::string_view keys) {
  const Value* value = find(keys);
  if (value == nullptr || value->is(json::Kind::array)) return value;
  wrong_type(*value, keys, "a list");
  return nullptr;
}

std::string HuggingFaceConfig::text(std::string_view keys) {
  const Value* value = find(keys);
  if (value == nullptr) return {};
  if (value->is(json::Kind::string)) return value->text;
  wrong_type(*value, keys, "a name");
  return {};
}

bool HuggingFaceConfig::any_above_zero(std::string_view keys) {
  bool any = false;
  for (const std::string_view key : names_in(keys))
    any = number(key).value_or(0) > 0 || any;
  return any;
}

std::string_view HuggingFaceConfig::name_of(std::string_view keys) const {
  const std::vector<std::string_view> names = names_in(keys);
  for (const std::string_view key : names) {
    const Value* value = object_.find(key);
    if (value != nullptr && !value->is(json::Kind::null)) return key;
  }
  return names.empty() ? std::string_view() : names.front();
}

void HuggingFaceConfig::error(const json::Place& at, std::string_view key, std::string message,
                              std::string hint) {
  failed_ = true;
  diagnostics_.push_back({Severity::error, at.position(), fmt::format("{}/{}", pointer_, key),
                          std::move(message), std::move(hint)});
}

void HuggingFaceConfig::warning(const json::Place& at, std::string_view key, std::string message,
                                std::string hint) {
  diagnostics_.push_back({Severity::warning, at.position(), fmt::format("{}/{}", pointer_, key),
                          std::move(message), std::move(hint)});
}

void HuggingFaceConfig::missing(std::string_view keys, std::string hint) {
  error(object_.at, name_of(keys), "is required and missing", std::move(hint));
}

void HuggingFaceConfig::wrong_type(const Value& value, std::string_view keys,
                                   std::string_view expected) {
  error(value.at, name_of(keys), fmt::format("expected {}, got {}", expected, json::quoted(value)));
}

void HuggingFaceConfig::judge_the_rest(std::string_view model_type) {
  for (const json::Member& member : object_.members) {
    if (std::find(asked_.begin(), asked_.end(), member.key) != asked_.end()) continue;
    if (is_off(member.value) || is_harmless_key(member.key)) continue;
    if (may_change_network(member.key)) {
      error(member.at, member.key,
            fmt::format("is not understood for {}, and may change the network", model_type),
            "remove it if it changes nothing; else describe the network with the fields of /model");
    } else {
      warning(member.at, member.key, "is not known, and taken not to change the network");
    }
  }
}

}  // namespace trainyard::scenario
