// An object of a Hugging Face config.json: its values by type, and which of its keys were asked
// for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/json/value.h"

namespace trainyard::scenario {

// Keys are asked for by one name or by several ("n_embd|hidden_size"), of which those that the file
// has must agree. null counts as absent.
class HuggingFaceConfig {
 public:
  // `object` must outlive the config. `pointer`: where it stands in its file.
  HuggingFaceConfig(const json::Value& object, std::string pointer,
                    std::vector<Diagnostic>& diagnostics)
      : object_(object), pointer_(std::move(pointer)), diagnostics_(diagnostics) {}

  const json::Value* find(std::string_view keys);
  // Nothing if absent; a value of another type is an error with its place.
  std::optional<bool> flag(std::string_view keys);
  std::optional<double> number(std::string_view keys);
  std::optional<std::int64_t> count(std::string_view keys);  // up to 1e9
  const json::Value* list(std::string_view keys);
  std::string text(std::string_view keys);
  // Whether any of these rates is above 0.
  bool any_above_zero(std::string_view keys);

  // The name of `keys` that the file has, else the first.
  std::string_view name_of(std::string_view keys) const;
  const json::Place& at() const { return object_.at; }

  void error(const json::Place& at, std::string_view key, std::string message,
             std::string hint = {});
  void warning(const json::Place& at, std::string_view key, std::string message,
               std::string hint = {});
  void missing(std::string_view keys, std::string hint = {});
  bool failed() const { return failed_; }

  // Judges the keys that nobody asked for, by the rules of known_keys.h.
  void judge_the_rest(std::string_view model_type);

 private:
  void wrong_type(const json::Value& value, std::string_view keys, std::string_view expected);

  const json::Value& object_;
  std::string pointer_;
  std::vector<Diagnostic>& diagnostics_;
  std::vector<std::string> asked_;
  bool failed_ = false;
};

// The names in "a|b|c".
std::vector<std::string_view> names_in(std::string_view keys);

}  // namespace trainyard::scenario
