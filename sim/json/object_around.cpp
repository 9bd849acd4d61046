#include "sim/json/object_around.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/json/field_words.h"
#include "sim/json/told_fields.h"

namespace trainyard::json {
namespace {

// Keys whose names are listed are looked at; objects inside, whose names are of other things, not.
class NameFinder : public ToldFields {
 public:
  explicit NameFinder(const Value& scalar) : scalar_(scalar) {}

  void source(const FieldInfo& info) override { note_known(info); }

  const std::string& key() const { return key_; }

 protected:
  bool told(const FieldInfo&, Value) override { return false; }
  bool scalar(const FieldInfo& info, Target) override { return note_known(info); }
  bool maybe(const FieldInfo&, Target, bool) override { return false; }
  bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                 std::size_t&) override {
    return note(info, find_name(scalar_.text, names).has_value());
  }
  bool nested(const FieldInfo&, const std::function<void(Fields&)>&) override { return false; }
  bool maybe_nested(const FieldInfo&, bool, const std::function<void(Fields&)>&) override {
    return false;
  }
  bool nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>&) override {
    return note_known(info);
  }
  bool name_or_nested(const FieldInfo& info, std::span<const std::string_view> names, std::string&,
                      const std::function<void(Fields&)>&) override {
    return note(info, find_name(scalar_.text, names).has_value());
  }
  bool array(const FieldInfo&, std::size_t, const std::function<void(std::size_t)>&,
             const std::function<void(Fields&, std::string_view, std::size_t)>&) override {
    return false;
  }
  bool members(const FieldInfo&, const std::vector<std::string>&,
               const std::function<void(const std::vector<std::string>&)>&,
               const std::function<void(Fields&, std::string_view, std::size_t)>&) override {
    return false;
  }

 private:
  bool note_known(const FieldInfo& info) {
    if (info.known == nullptr) return false;
    const std::vector<std::string> names = info.known();
    return note(info, std::find(names.begin(), names.end(), scalar_.text) != names.end());
  }
  bool note(const FieldInfo& info, bool is_meant) {
    if (is_meant && key_.empty()) key_ = info.key;
    return false;
  }

  const Value& scalar_;
  std::string key_;
};

}  // namespace

std::string object_around(const Value& scalar, const std::function<void(Fields&)>& visit) {
  if (!scalar.is(Kind::string)) return {};
  NameFinder finder(scalar);
  visit(finder);
  if (finder.key().empty()) return {};
  Value object = Value::object();
  object.set(finder.key(), Value::of(scalar.text));
  return to_text(object, -1);
}

}  // namespace trainyard::json
