// The fields of one line of samples.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/value.h"

namespace trainyard::fit {

// Reads keys of one object and notes what is missing or impossible; unknown keys are ignored.
class SampleLine {
 public:
  SampleLine(const json::Value& object, Position at, std::vector<Diagnostic>& diagnostics)
      : object_(object), at_(std::move(at)), diagnostics_(diagnostics) {}

  enum class Need { required, optional };
  static constexpr Need required = Need::required;
  static constexpr Need optional = Need::optional;

  // Where the key is absent, or its value wrong and reported: `otherwise`.
  std::string text(std::string_view key, Need need, std::string otherwise = "");
  std::int64_t integer(std::string_view key, std::int64_t least, Need need,
                       std::int64_t otherwise = 0);
  // Of things that a machine has: at most a million.
  int count(std::string_view key, int least, Need need, int otherwise = 0);
  double number(std::string_view key, double least, Need need, double otherwise = 0);
  double positive(std::string_view key, Need need);
  bool flag(std::string_view key, Need need, bool otherwise = false);
  // One of the words; hyphen and underscore are the same letter. Returns the word of the list.
  std::string word(std::string_view key, const std::vector<std::string_view>& words, Need need,
                   std::string_view otherwise = "");

  void error(std::string_view key, std::string message, std::string hint = {});
  const json::Value* find(std::string_view key) const { return object_.find(key); }
  const Position& at() const { return at_; }

 private:
  const json::Value* take(std::string_view key, Need need);

  const json::Value& object_;
  Position at_;
  std::vector<Diagnostic>& diagnostics_;
};

}  // namespace trainyard::fit
