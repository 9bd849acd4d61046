// One description of an object's fields, for all who need it.
//
// A section of a file format is a struct and one function that names each field once:
//
//   void visit_fields(json::Fields& f, Training& t) {
//     f.field("global_batch", t.global_batch, json::required, json::at_least(1),
//             "Sequences per optimizer step, over all GPUs.");
//     f.choice("recompute", t.recompute, kRecomputeNames, json::optional, "Activation
//     recomputation."); f.section("optimizer", t.optimizer, json::optional, "How parameters are
//     updated.");
//   }
//
// The Reader fills the struct from a Value, the Writer makes a Value of the struct, the
// SchemaWriter writes JSON Schema, the Explainer lists every value with its origin. There is no
// second list of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/base/option.h"
#include "sim/base/units.h"

namespace trainyard::json {

enum class Need : std::uint8_t { required, optional };
inline constexpr Need required = Need::required;
inline constexpr Need optional = Need::optional;

// What a number, or the count of a quantity in its base unit (B, s, B/s, FLOP/s, W), may be.
struct Bounds {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open = false;  // `least` itself is refused

  constexpr bool hold(double value) const {
    return (open ? value > least : value >= least) && value <= most;
  }
};
inline constexpr Bounds anything{};
inline constexpr Bounds positive{0, std::numeric_limits<double>::infinity(), true};
inline constexpr Bounds not_negative{0, std::numeric_limits<double>::infinity(), false};
constexpr Bounds at_least(double least) {
  return {least, std::numeric_limits<double>::infinity(), false};
}
constexpr Bounds between(double least, double most) {
  return {least, most, false};
}
inline constexpr Bounds ratio{0, 1, true};  // above 0, up to 1

// Names that a text may be, for editors; others are texts too.
using KnownNames = std::vector<std::string> (*)();

struct FieldInfo {
  std::string_view key;
  Need need = Need::required;
  Bounds bounds{};
  std::string_view about;  // one sentence for the schema and `explain`
  bool one_too = false;    // of an array: its only item may stand without the brackets
  bool fixed = true;       // the value before reading is what leaving the field out always means
  KnownNames known = nullptr;  // of a text
  bool words = false;          // of an array: its items are words
};

// A value of the struct, by type.
using Target = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                            Bytes*, Duration*, Seconds*, BytesPerSecond*, FlopsPerSecond*, Watts*>;

struct Value;

// A target's present value as JSON, quantities in the form that reads back equal.
Value json_of(const Target& target);

template <class E>
struct Choice {
  std::string_view name;
  E value;
};

class Fields {
 public:
  virtual ~Fields() = default;

  // A number, a flag, a string or a quantity. Says whether the file has the field.
  template <class T>
  bool field(std::string_view key, T& value, Need need, Bounds bounds, std::string_view about) {
    return scalar({key, need, bounds, about}, Target(&value));
  }
  template <class T>
  bool field(std::string_view key, T& value, Need need, std::string_view about) {
    return scalar({key, need, anything, about}, Target(&value));
  }
  // A text for which editors know names; others are texts too.
  bool field(std::string_view key, std::string& value, Need need, KnownNames known,
             std::string_view about) {
    return scalar({key, need, anything, about, false, true, known}, Target(&value));
  }
  // A field that may be absent; absent and null leave it empty.
  template <class T>
  bool field(std::string_view key, std::optional<T>& value, Bounds bounds, std::string_view about) {
    T given = value.value_or(T{});
    const bool found = maybe({key, Need::optional, bounds, about, false, false}, Target(&given),
                             value.has_value());
    if (found) value = given;
    return found;
  }
  // The same for an option, which has a default: it is written and explained where it is said.
  template <class T>
  bool field(std::string_view key, Option<T>& value, Bounds bounds, std::string_view about) {
    T given = value;
    const bool found = maybe({key, Need::optional, bounds, about, false, value.is_fixed()},
                             Target(&given), value.is_said());
    if (found) value = given;
    return found;
  }

  // One of a list of names; hyphen and underscore are the same letter. All names of a list that
  // stand for one value are accepted, the first is written. The names true and false are JSON's.
  template <class E, class List>
  bool choice(std::string_view key, E& value, const List& list, Need need, std::string_view about) {
    return choice(FieldInfo{key, need, anything, about}, value, list);
  }
  template <class E, class List>
  bool choice(const FieldInfo& info, E& value, const List& list) {
    std::vector<std::string_view> names;
    std::size_t chosen = 0;
    bool known = false;
    for (const Choice<E>& entry : list) {
      if (!known && entry.value == value) {
        chosen = names.size();
        known = true;
      }
      names.push_back(entry.name);
    }
    const bool found = choice_of(info, names, chosen);
    if (found) value = std::begin(list)[chosen].value;
    return found;
  }
  // The same for an option; its default is shown as a value is.
  template <class E, class List>
  bool choice(std::string_view key, Option<E>& value, const List& list, Need need,
              std::string_view about) {
    E given = value;
    const bool found =
        choice(FieldInfo{key, need, anything, about, false, value.is_fixed()}, given, list);
    if (found) value = given;
    return found;
  }
  // The same where nothing may be chosen.
  template <class E, class List>
  bool choice(std::string_view key, std::optional<E>& value, const List& list,
              std::string_view about) {
    std::vector<std::string_view> names;
    for (const Choice<E>& entry : list)
      names.push_back(entry.name);
    std::size_t chosen = names.size();
    for (std::size_t i = names.size(); value && i-- > 0;) {
      if (std::begin(list)[i].value == *value) chosen = i;
    }
    const bool found =
        choice_of({key, Need::optional, anything, about, false, false}, names, chosen);
    if (found) value = std::begin(list)[chosen].value;
    return found;
  }
  // The same with the name itself as the value.
  bool name(std::string_view key, std::string& value, std::span<const std::string_view> names,
            Need need, std::string_view about);

  // A nested object.
  template <class T>
  bool section(std::string_view key, T& value, Need need, std::string_view about) {
    return nested({key, need, anything, about}, [&value](Fields& f) { visit_fields(f, value); });
  }
  // A nested object that may be absent.
  template <class T>
  bool section(std::string_view key, std::optional<T>& value, std::string_view about) {
    T given = value.value_or(T{});
    const bool found = maybe_nested({key, Need::optional, anything, about}, value.has_value(),
                                    [&given](Fields& f) { visit_fields(f, given); });
    if (found) value = std::move(given);
    return found;
  }
  // The same where one of `names` may stand for an object; then `name` is not empty.
  template <class T>
  bool name_or_section(std::string_view key, std::string& name,
                       std::span<const std::string_view> names, T& value, Need need,
                       std::string_view about) {
    return name_or_nested({key, need, anything, about}, names, name,
                          [&value](Fields& f) { visit_fields(f, value); });
  }
  // The same where a string names a preset that holds the object (expanded before reading).
  template <class T>
  bool section_or_name(std::string_view key, T& value, Need need, std::string_view about,
                       KnownNames known = nullptr) {
    return nested_or_name({key, need, anything, about, false, true, known},
                          [&value](Fields& f) { visit_fields(f, value); });
  }

  // Arrays of scalars and of objects; `or_one`: a single one may stand without the brackets.
  template <class T>
  bool list(std::string_view key, std::vector<T>& value, Need need, Bounds bounds,
            std::string_view about, bool or_one = false) {
    return array(
        {key, need, anything, about, or_one}, value.size(),
        [&value](std::size_t size) { value.resize(size); },
        [&value, bounds](Fields& f, std::string_view at, std::size_t i) {
          f.field(at, value[i], Need::required, bounds, "");
        });
  }
  template <class T>
  bool sections(std::string_view key, std::vector<T>& value, Need need, std::string_view about,
                bool or_one = false) {
    return array(
        {key, need, anything, about, or_one}, value.size(),
        [&value](std::size_t size) { value.resize(size); },
        [&value](Fields& f, std::string_view at, std::size_t i) {
          f.section(at, value[i], Need::required, "");
        });
  }

  // An array of names out of a list; `or_one`: a single one may stand without the brackets.
  template <class E, class List>
  bool choice(std::string_view key, std::vector<E>& value, const List& list, Need need,
              std::string_view about, bool or_one = false) {
    return array(
        {key, need, anything, about, or_one, true, nullptr, true}, value.size(),
        [&value](std::size_t size) { value.resize(size); },
        [&value, &list](Fields& f, std::string_view at, std::size_t i) {
          f.choice(at, value[i], list, Need::required, "");
        });
  }

  // An object whose keys are names that the file chooses. Items have a `name`, and
  // visit_named(Fields&, key, item) names what stands under it.
  template <class T>
  bool named(std::string_view key, std::vector<T>& value, std::string_view about) {
    std::vector<std::string> names;
    for (const T& item : value)
      names.push_back(item.name);
    return members(
        {key, Need::optional, anything, about}, names,
        [&value](const std::vector<std::string>& found) {
          value.resize(found.size());
          for (std::size_t i = 0; i < found.size(); ++i)
            value[i].name = found[i];
        },
        [&value](Fields& f, std::string_view at, std::size_t i) { visit_named(f, at, value[i]); });
  }

  // An object whose `key` says which of several sets of fields it has; where it may be absent,
  // that which is chosen before.
  virtual void alternatives(const FieldInfo& info, std::span<const std::string_view> names,
                            std::size_t& chosen,
                            const std::function<void(Fields&)>& visit_chosen) = 0;

  // An array of `size` numbers, or one of `names`: exactly one of `numbers` and `name` is not
  // empty.
  virtual bool numbers_or_name(const FieldInfo& info, std::span<const std::string_view> names,
                               std::string& name, std::vector<int>& numbers) = 0;

  // A key of the format that cannot be simulated: refused, except with a harmless value ("1",
  // "\"none\"").
  virtual void unsupported(std::string_view key, std::string_view what,
                           std::initializer_list<std::string_view> harmless = {}) = 0;

  // Names that the next choice knows but cannot simulate, said so instead of "unknown".
  virtual void not_yet(std::initializer_list<std::string_view>) {}

  // A key that is meant for others ("$schema") or was used before reading ("preset"); `is_patch`: a
  // merge patch of the whole document, under which alone keys of the top level mean something here.
  virtual void accepted(std::string_view key, std::string_view about, bool is_patch = false) = 0;

  // A key that names a file which holds the other fields, so that none of them is
  // required beside it. Expanded before reading.
  virtual void source(const FieldInfo& info) = 0;

  // A mistake that only the section's own code can see; ignored by writers.
  virtual void problem(std::string_view key, std::string message, std::string hint = {}) = 0;

 protected:
  virtual bool scalar(const FieldInfo& info, Target target) = 0;
  virtual bool maybe(const FieldInfo& info, Target target, bool has_value) = 0;
  virtual bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                         std::size_t& chosen) = 0;
  virtual bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) = 0;
  virtual bool maybe_nested(const FieldInfo& info, bool /*has_value*/,
                            const std::function<void(Fields&)>& visit) {
    return nested(info, visit);
  }
  virtual bool nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>& visit) = 0;
  virtual bool name_or_nested(const FieldInfo& info, std::span<const std::string_view> names,
                              std::string& name, const std::function<void(Fields&)>& visit) = 0;
  virtual bool array(const FieldInfo& info, std::size_t size,
                     const std::function<void(std::size_t)>& resize,
                     const std::function<void(Fields&, std::string_view, std::size_t)>& visit) = 0;
  virtual bool members(
      const FieldInfo& info, const std::vector<std::string>& names,
      const std::function<void(const std::vector<std::string>&)>& rename,
      const std::function<void(Fields&, std::string_view, std::size_t)>& visit) = 0;
};

}  // namespace trainyard::json
