// Reads an object into a struct by its field table, and notes every mistake instead of the first.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/fields.h"
#include "sim/json/value.h"

namespace trainyard::json {

// Every key of a format with the pointer of the section it belongs to, for "belongs under
// /training".
struct KnownKey {
  std::string key;
  std::string section;  // "" for the top level
};
using KeyIndex = std::vector<KnownKey>;

class Reader : public Fields {
 public:
  // Reads `object` (which stands at `pointer` of its document). Both references must outlive the
  // reader.
  Reader(const Value& object, std::string pointer, std::vector<Diagnostic>& diagnostics,
         const KeyIndex* known = nullptr);

  // Notes a diagnostic and says false if there is no object to read.
  bool check_object();

  // Reports the keys that no field asked for; keys starting with "x-" are notes of the user. Call
  // it after the last field.
  void finish();

  void alternatives(const FieldInfo& info, std::span<const std::string_view> names,
                    std::size_t& chosen, const std::function<void(Fields&)>& visit_chosen) override;
  bool numbers_or_name(const FieldInfo& info, std::span<const std::string_view> names,
                       std::string& name, std::vector<int>& numbers) override;
  void unsupported(std::string_view key, std::string_view what,
                   std::initializer_list<std::string_view> harmless) override;
  void not_yet(std::initializer_list<std::string_view> names) override;
  void accepted(std::string_view key, std::string_view about, bool is_patch) override;
  void source(const FieldInfo& info) override;
  void problem(std::string_view key, std::string message, std::string hint) override;

 protected:
  bool scalar(const FieldInfo& info, Target target) override;
  bool maybe(const FieldInfo& info, Target target, bool has_value) override;
  bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                 std::size_t& chosen) override;
  bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) override;
  bool nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>& visit) override;
  bool name_or_nested(const FieldInfo& info, std::span<const std::string_view> names,
                      std::string& name, const std::function<void(Fields&)>& visit) override;
  bool array(const FieldInfo& info, std::size_t size,
             const std::function<void(std::size_t)>& resize,
             const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override;
  bool members(const FieldInfo& info, const std::vector<std::string>& names,
               const std::function<void(const std::vector<std::string>&)>& rename,
               const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override;

 private:
  const Value* take(const FieldInfo& info);  // the value, or null with a diagnostic if one is due
  std::string pointer_to(std::string_view key) const;
  void error(const Place& at, std::string_view key, std::string message, std::string hint = {});
  void error_at(const Place& at, std::string pointer, std::string message);
  void unknown_key(const Member& member);
  void unknown_name(const FieldInfo& info, const Value& value,
                    std::span<const std::string_view> names);

  const Value& object_;
  std::string pointer_;
  std::vector<Diagnostic>& diagnostics_;
  const KeyIndex* known_;
  std::vector<std::string> asked_;
  std::vector<std::string> refused_;       // of those: keys that are known only to be refused
  std::string patch_;                      // of those: the key that holds a merge patch
  std::vector<std::string_view> not_yet_;  // names of the next choice that are refused kindly
};

// Reads a whole struct: a Reader, its fields, finish().
template <class T>
void read_object(const Value& object, const std::string& pointer, T& into,
                 std::vector<Diagnostic>& diagnostics, const KeyIndex* known = nullptr) {
  Reader reader(object, pointer, diagnostics, known);
  if (!reader.check_object()) return;
  visit_fields(static_cast<Fields&>(reader), into);
  reader.finish();
}

// "an object", "\"four\"", "400": a value as a diagnostic quotes it, cut to a readable length.
std::string quoted(const Value& value);

}  // namespace trainyard::json
