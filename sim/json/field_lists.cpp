// Who reads a field table without a schema in mind: the known keys, and the resolved values.
#include <fmt/format.h>

#include <algorithm>

#include "sim/json/field_words.h"
#include "sim/json/schema.h"
#include "sim/json/told_fields.h"

namespace trainyard::json {
namespace {

// Visits everything and notes where each key stands.
class KeyCollector : public Fields {
 public:
  KeyCollector(std::string section, KeyIndex& keys) : section_(std::move(section)), keys_(keys) {}

  void alternatives(const FieldInfo& info, std::span<const std::string_view> names,
                    std::size_t& chosen,
                    const std::function<void(Fields&)>& visit_chosen) override {
    note(info.key);
    for (chosen = 0; chosen < names.size(); ++chosen)
      visit_chosen(*this);
    chosen = 0;
  }
  bool numbers_or_name(const FieldInfo& info, std::span<const std::string_view>, std::string&,
                       std::vector<int>&) override {
    return note(info.key);
  }
  void unsupported(std::string_view key, std::string_view,
                   std::initializer_list<std::string_view>) override {
    note(key);
  }
  void accepted(std::string_view key, std::string_view, bool) override { note(key); }
  void source(const FieldInfo& info) override { note(info.key); }
  void problem(std::string_view, std::string, std::string) override {}

 protected:
  bool scalar(const FieldInfo& info, Target) override { return note(info.key); }
  bool maybe(const FieldInfo& info, Target, bool) override { return note(info.key); }
  bool choice_of(const FieldInfo& info, std::span<const std::string_view>, std::size_t&) override {
    return note(info.key);
  }
  bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    note(info.key);
    KeyCollector child(fmt::format("{}/{}", section_, info.key), keys_);
    visit(child);
    return false;
  }
  bool nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    return nested(info, visit);
  }
  bool name_or_nested(const FieldInfo& info, std::span<const std::string_view>, std::string&,
                      const std::function<void(Fields&)>& visit) override {
    return nested(info, visit);
  }
  bool array(const FieldInfo& info, std::size_t, const std::function<void(std::size_t)>&,
             const std::function<void(Fields&, std::string_view, std::size_t)>&) override {
    return note(info.key);  // keys of items are not offered to other sections
  }
  bool members(const FieldInfo& info, const std::vector<std::string>&,
               const std::function<void(const std::vector<std::string>&)>&,
               const std::function<void(Fields&, std::string_view, std::size_t)>&) override {
    return note(info.key);
  }

 private:
  bool note(std::string_view key) {
    const auto same = [&](const KnownKey& known) {
      return known.key == key && known.section == section_;
    };
    if (std::none_of(keys_.begin(), keys_.end(), same))
      keys_.push_back({std::string(key), section_});
    return false;
  }
  std::string section_;
  KeyIndex& keys_;
};

class FieldExplainer : public ToldFields {
 public:
  FieldExplainer(const Value& document, std::string pointer, std::vector<Explained>& lines)
      : document_(document), pointer_(std::move(pointer)), lines_(lines) {}

  void source(const FieldInfo& info) override {
    if (const Value* value = find(document_, fmt::format("{}/{}", pointer_, info.key)))
      told(info, *value);
  }

 protected:
  bool told(const FieldInfo& info, Value value) override {
    const Value* written = given(info);
    lines_.push_back({pointer_ + "/" + escape_pointer(info.key), to_text(value, -1),
                      written != nullptr ? written->at.position() : Position{"default", 0, 0},
                      std::string(info.about)});
    return false;
  }
  // What no file could say is no value: 0 where only more is one.
  bool scalar(const FieldInfo& info, Target target) override {
    const bool is_given = given(info) != nullptr;
    if (!is_given && info.need == Need::required) lacks_ = true;
    return (is_given || can_be_said(info.bounds, target)) && told(info, json_of(target));
  }
  bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    FieldExplainer child(document_, pointer_ + "/" + escape_pointer(info.key), lines_);
    const std::size_t before = lines_.size();
    visit(child);
    // An object that may be absent and lacks what it must have is absent.
    if (child.lacks_ && info.need == Need::optional) lines_.resize(before);
    lacks_ = lacks_ || (child.lacks_ && info.need == Need::required);
    return false;
  }
  bool array(const FieldInfo& info, std::size_t size, const std::function<void(std::size_t)>&,
             const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    const std::string pointer = pointer_ + "/" + escape_pointer(info.key);
    const Value* written = find(document_, pointer);
    if (info.one_too && size == 1 && written != nullptr && !written->is(Kind::array)) {
      visit(*this, info.key, 0);
      return false;
    }
    FieldExplainer child(document_, pointer, lines_);
    for (std::size_t i = 0; i < size; ++i)
      visit(child, std::to_string(i), i);
    return false;
  }
  bool members(const FieldInfo& info, const std::vector<std::string>& names,
               const std::function<void(const std::vector<std::string>&)>&,
               const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    FieldExplainer child(document_, pointer_ + "/" + escape_pointer(info.key), lines_);
    for (std::size_t i = 0; i < names.size(); ++i)
      visit(child, names[i], i);
    return false;
  }

 private:
  const Value* given(const FieldInfo& info) const {
    const Value* written = find(document_, pointer_ + "/" + escape_pointer(info.key));
    return written != nullptr && !written->is(Kind::null) ? written : nullptr;
  }
  const Value& document_;
  std::string pointer_;
  std::vector<Explained>& lines_;
  bool lacks_ = false;  // a number that is required
};

}  // namespace

KeyIndex keys_of(const std::function<void(Fields&)>& visit) {
  KeyIndex keys;
  KeyCollector collector("", keys);
  visit(collector);
  return keys;
}

std::vector<Explained> explain(const Value& document, const std::function<void(Fields&)>& visit) {
  std::vector<Explained> lines;
  FieldExplainer explainer(document, "", lines);
  visit(explainer);
  return lines;
}

}  // namespace trainyard::json
