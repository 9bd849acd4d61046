#include "sim/json/cures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "sim/base/text.h"

namespace trainyard::json {
namespace {

constexpr std::size_t kListedNames = 64;

// More that are equally near are none.
std::string did_you_mean(const std::vector<std::string_view>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < names.size() && names.size() <= kMost; ++i)
    text += fmt::format("{}\"{}\"",
                        i == 0                 ? "did you mean "
                        : i + 1 < names.size() ? ", "
                                               : " or ",
                        names[i]);
  return text.empty() ? text : text + "?";
}

// Keys that say what an object is, of which people know one for another.
constexpr std::array<std::string_view, 6> kSelectors = {"kind",   "type",   "family",
                                                        "preset", "method", "schedule"};

bool is_selector(std::string_view key) {
  return std::find(kSelectors.begin(), kSelectors.end(), key) != kSelectors.end();
}

// Those of an object that a wrong key may be meant for.
std::vector<std::string_view> near_keys(std::string_view wrong,
                                        const std::vector<std::string_view>& here,
                                        bool is_known_elsewhere) {
  if (is_selector(wrong)) {
    std::vector<std::string_view> selectors = here;
    std::erase_if(selectors, [](std::string_view key) { return !is_selector(key); });
    if (!selectors.empty()) return selectors;
  }
  constexpr int kSlips = 2;  // "norm_input" is norm_inputs, though "norm" is a part of it
  const std::vector<std::string_view> near = find_all_nearest(wrong, here);
  if (!near.empty() && edit_distance(wrong, near.front()) <= kSlips) return near;
  const std::optional<std::string_view> part = find_part(wrong, here);
  return part && !is_known_elsewhere ? std::vector{*part} : near;
}

std::string_view first_token(std::string_view pointer) {
  return pointer.substr(0, pointer.find('/', 1));
}

// Whether a key of one section may be meant by the same word in another: a single word deep in
// another part ("type" of the optimizer) is there for something else.
bool may_be_meant(const KnownKey& known, std::string_view section) {
  return section.empty() || first_token(section) == first_token(known.section) ||
         first_token(known.section) == known.section || known.key.find('_') != known.key.npos;
}

}  // namespace

std::string joined(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names)
    out += fmt::format("{}{}", out.empty() ? "" : ", ", name);
  return out;
}

std::string cure_of_name(std::string_view word, std::span<const std::string_view> names) {
  std::string lowered(word);
  for (char& c : lowered) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  std::string hint = did_you_mean(find_all_nearest(lowered, names));
  if (names.size() <= kListedNames)
    hint += fmt::format("{}known: {}", hint.empty() ? "" : " ", joined(names));
  else if (const auto near = near_names(lowered, names, 3); hint.empty() && !near.empty())
    hint = fmt::format("nearest: {}", joined(near));
  return hint;
}

bool holds(const KeyIndex& known, std::string_view key, std::string_view section) {
  return std::any_of(known.begin(), known.end(), [&](const KnownKey& other) {
    return other.key == key && other.section == section;
  });
}

std::string cure_of_key(std::string_view key, const std::vector<std::string_view>& here,
                        std::string_view section, const KeyIndex* known) {
  std::string wrong(key);
  std::replace(wrong.begin(), wrong.end(), '-', '_');
  std::string places;
  // Where this very section has it, it is of another choice of its kind.
  if (known != nullptr && !holds(*known, wrong, section))
    for (const KnownKey& other : *known)
      if (other.key == wrong && may_be_meant(other, section))
        places += fmt::format("{}{}", places.empty() ? "it belongs under " : " or ",
                              other.section.empty() ? "the top level" : other.section);
  std::string hint = did_you_mean(near_keys(wrong, here, !places.empty()));
  if (hint.empty()) hint = places;
  if (hint.empty() && here.size() <= kListedNames) hint = "known: " + joined(here);
  return hint;
}

std::string array_of_words(const Value& value) {
  if (!value.is(Kind::string) || value.text.empty()) return {};
  std::string_view text = value.text;
  const bool is_of_shell = text.size() > 1 && text.front() == '[' && text.back() == ']';
  if (is_of_shell) text = text.substr(1, text.size() - 2);
  Value list = Value::array();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string_view word = text.substr(at, end - at);
    while (!word.empty() && (word.front() == ' ' || word.front() == '"'))
      word.remove_prefix(1);
    while (!word.empty() && (word.back() == ' ' || word.back() == '"'))
      word.remove_suffix(1);
    list.append(Value::of(word));
    at = end + 1;
  }
  return fmt::format("write {}{}", to_text(list, -1),
                     is_of_shell ? ", for a shell between ' and '" : "");
}

}  // namespace trainyard::json
