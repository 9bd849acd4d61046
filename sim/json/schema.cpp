#include "sim/json/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/json/field_words.h"
#include "sim/json/quantity.h"

namespace trainyard::json {
namespace {

// JSON Schema of a scalar by its type.
struct TypeSchema {
  const Bounds& bounds;

  Value operator()(const bool*) const { return typed("boolean"); }
  Value operator()(const std::string*) const { return typed("string"); }
  Value operator()(const int*) const {
    Value schema = bounded(typed("integer"));
    if (schema.find("maximum") == nullptr)
      schema.set("maximum", Value::of(std::int64_t{std::numeric_limits<int>::max()}));
    return schema;
  }
  Value operator()(const std::int64_t*) const { return bounded(typed("integer")); }
  Value operator()(const std::uint64_t*) const {
    Value schema = typed("integer");
    schema.set("minimum", Value::of(0));
    return schema;
  }
  Value operator()(const double*) const { return bounded(typed("number")); }
  template <class Unit>
  Value operator()(const Unit* unit) const {
    Value schema = typed("string");
    schema.set("pattern", Value::of(quantity_pattern(unit)));
    return schema;
  }

 private:
  static Value typed(const char* type) {
    Value schema = Value::object();
    schema.set("type", Value::of(type));
    return schema;
  }
  Value bounded(Value schema) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (bounds.least > -kInfinity)
      schema.set(bounds.open ? "exclusiveMinimum" : "minimum", Value::of(bounds.least));
    if (bounds.most < kInfinity) schema.set("maximum", Value::of(bounds.most));
    return schema;
  }
};

Value enumeration(std::span<const std::string_view> names) {
  Value list = Value::array();
  for (const std::string_view name : names) {
    list.append(Value::of_name(name));
    std::string hyphens(name);
    for (char& c : hyphens)
      c = c == '_' ? '-' : c;
    if (hyphens != name) list.append(Value::of(hyphens));
  }
  Value schema = Value::object();
  schema.set("enum", std::move(list));
  return schema;
}

Value one_of(const char* word, Value first, Value second) {
  Value list = Value::array();
  list.append(std::move(first));
  list.append(std::move(second));
  Value schema = Value::object();
  schema.set(word, std::move(list));
  return schema;
}

// Any text; names that it may be complete in editors.
Value text(KnownNames known) {
  Value any = Value::object();
  any.set("type", Value::of("string"));
  if (known == nullptr) return any;
  Value names = Value::array();
  for (const std::string& name : known())
    names.append(Value::of(name));
  Value listed = Value::object();
  listed.set("enum", std::move(names));
  return one_of("anyOf", std::move(listed), std::move(any));
}

class SchemaWriter : public Fields {
 public:
  Schema take() {
    Value shape = Value::object();
    shape.set("type", Value::of("object"));
    shape.set("properties", std::move(properties_));
    Value notes = Value::object();
    notes.set("^x-", Value::object());
    shape.set("patternProperties", std::move(notes));
    shape.set("additionalProperties", Value::of(false));
    Value complete = Value::object();
    if (!required_.items.empty()) complete.set("required", std::move(required_));
    if (!nested_complete_.members.empty()) complete.set("properties", std::move(nested_complete_));
    for (const std::string& key : sources_) {
      Value named = Value::object();
      named.set("required", Value::array()).append(Value::of(key));
      complete = one_of("anyOf", std::move(named), std::move(complete));
    }
    if (branches_.items.empty()) return {std::move(shape), std::move(complete)};
    // An object with alternatives has one shape, complete or not, for each.
    Value any_shape = Value::object(), any_complete = Value::object();
    any_shape.set("anyOf", std::move(branches_));
    any_complete.set("anyOf", std::move(complete_branches_));
    return {std::move(any_shape), std::move(any_complete)};
  }

  void alternatives(const FieldInfo& info, std::span<const std::string_view> names, std::size_t&,
                    const std::function<void(Fields&)>& visit_chosen) override;
  bool numbers_or_name(const FieldInfo& info, std::span<const std::string_view> names,
                       std::string& name, std::vector<int>&) override {
    Value list = Value::object();
    list.set("type", Value::of("array"));
    int number = 0;
    list.set("items", TypeSchema{info.bounds}(&number));
    Value schema = one_of("oneOf", enumeration(names), std::move(list));
    if (has_default(info) && !name.empty()) schema.set("default", Value::of(name));
    add(info, std::move(schema));
    return false;
  }
  void unsupported(std::string_view key, std::string_view what,
                   std::initializer_list<std::string_view> harmless) override {
    if (harmless.size() == 0) return;
    Value list = Value::array();
    for (const std::string_view text : harmless) {
      if (text.substr(0, 1) == "\"") {
        list.append(Value::of(text.substr(1, text.size() - 2)));
      } else if (text == "true" || text == "false") {
        list.append(Value::of(text == "true"));
      } else {
        Value number = Value::of(0);
        number.text = text;
        list.append(std::move(number));
      }
    }
    Value schema = Value::object();
    schema.set("enum", std::move(list));
    add({key, Need::optional, anything, what}, std::move(schema));
  }
  void accepted(std::string_view key, std::string_view about, bool) override {
    add({key, Need::optional, anything, about}, Value::object());
  }
  void source(const FieldInfo& info) override {
    add(info, text(info.known));
    sources_.emplace_back(info.key);
  }
  void problem(std::string_view, std::string, std::string) override {}

 protected:
  bool scalar(const FieldInfo& info, Target target) override {
    Value schema =
        info.known != nullptr ? text(info.known) : std::visit(TypeSchema{info.bounds}, target);
    if (has_default(info) && can_be_said(info.bounds, target))
      schema.set("default", json_of(target));
    add(info, std::move(schema));
    return false;
  }
  bool maybe(const FieldInfo& info, Target target, bool) override { return scalar(info, target); }
  bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                 std::size_t& chosen) override {
    Value schema = enumeration(names);
    if (has_default(info) && chosen < names.size())
      schema.set("default", Value::of_name(names[chosen]));
    add(info, std::move(schema));
    return false;
  }
  bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    Schema child = schema_of(visit);
    if (!child.complete.members.empty()) nested_complete_.set(info.key, std::move(child.complete));
    add(info, std::move(child.shape));
    return false;
  }
  bool nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    Schema child = schema_of(visit);
    Value string = text(info.known);
    if (!child.complete.members.empty())
      nested_complete_.set(info.key, one_of("anyOf", string, std::move(child.complete)));
    add(info, one_of("anyOf", std::move(string), std::move(child.shape)));
    return false;
  }
  bool name_or_nested(const FieldInfo& info, std::span<const std::string_view> names,
                      std::string& name, const std::function<void(Fields&)>& visit) override {
    Value schema = one_of("anyOf", enumeration(names), schema_of(visit).shape);
    if (has_default(info) && !name.empty()) schema.set("default", Value::of(name));
    add(info, std::move(schema));
    return false;
  }
  bool array(const FieldInfo& info, std::size_t, const std::function<void(std::size_t)>& resize,
             const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    resize(1);
    SchemaWriter child;
    visit(child, "items", 0);
    Value schema = Value::object();
    schema.set("type", Value::of("array"));
    Value item = std::move(child.properties_.members.front().value);
    if (const Value* complete = child.nested_complete_.find("items")) {
      for (const Member& member : complete->members) {
        if (member.key == "required") item.set("required", member.value);
      }
    }
    Value single = item;
    schema.set("items", std::move(item));
    if (info.words) schema.set("minItems", Value::of(1));
    resize(0);
    add(info,
        info.one_too ? one_of("anyOf", std::move(schema), std::move(single)) : std::move(schema));
    return false;
  }
  bool members(const FieldInfo& info, const std::vector<std::string>&,
               const std::function<void(const std::vector<std::string>&)>& rename,
               const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    rename({"item"});
    SchemaWriter child;
    visit(child, "item", 0);
    Value schema = Value::object();
    schema.set("type", Value::of("object"));
    schema.set("additionalProperties", std::move(child.properties_.members.front().value));
    rename({});
    add(info, std::move(schema));
    return false;
  }

 private:
  static bool has_default(const FieldInfo& info) {
    return info.fixed && info.need == Need::optional;
  }
  void add(const FieldInfo& info, Value schema) {
    if (!info.about.empty()) schema.set("description", Value::of(info.about));
    properties_.set(info.key, std::move(schema));
    if (info.need == Need::required) required_.append(Value::of(info.key));
  }

  Value properties_ = Value::object();
  Value required_ = Value::array();
  Value nested_complete_ = Value::object();
  Value branches_ = Value::array(), complete_branches_ = Value::array();
  std::vector<std::string> sources_;
};

void SchemaWriter::alternatives(const FieldInfo& info, std::span<const std::string_view> names,
                                std::size_t& chosen,
                                const std::function<void(Fields&)>& visit_chosen) {
  const std::size_t usual = chosen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    chosen = 0;
    SchemaWriter branch;
    const Need need = i == usual ? info.need : Need::required;
    branch.choice_of({info.key, need, info.bounds, info.about}, names.subspan(i, 1), chosen);
    chosen = i;
    visit_chosen(branch);
    Schema schema = branch.take();
    Value* properties = schema.complete.find("properties");
    if (properties == nullptr) properties = &schema.complete.set("properties", Value::object());
    properties->set(info.key, enumeration(names.subspan(i, 1)));
    branches_.append(std::move(schema.shape));
    complete_branches_.append(std::move(schema.complete));
  }
  chosen = usual;
}

}  // namespace

bool Fields::name(std::string_view key, std::string& value, std::span<const std::string_view> names,
                  Need need, std::string_view about) {
  std::size_t chosen = names.size();
  for (std::size_t i = 0; i < names.size() && chosen == names.size(); ++i) {
    if (names[i] == value) chosen = i;
  }
  const bool found = choice_of({key, need, anything, about}, names, chosen);
  if (found) value = names[chosen];
  return found;
}

Value json_of(const Target& target) {
  struct Writer {
    Value operator()(const bool* value) const { return Value::of(*value); }
    Value operator()(const int* value) const { return Value::of(*value); }
    Value operator()(const std::int64_t* value) const { return Value::of(*value); }
    Value operator()(const std::uint64_t* value) const {
      Value number = Value::of(0);
      number.text = std::to_string(*value);
      return number;
    }
    Value operator()(const double* value) const { return Value::of(*value); }
    Value operator()(const std::string* value) const { return Value::of(std::string_view(*value)); }
    Value operator()(const Bytes* value) const { return Value::of(quantity_text(*value)); }
    Value operator()(const Duration* value) const { return Value::of(quantity_text(*value)); }
    Value operator()(const Seconds* value) const { return Value::of(quantity_text(*value)); }
    Value operator()(const BytesPerSecond* value) const { return Value::of(quantity_text(*value)); }
    Value operator()(const FlopsPerSecond* value) const { return Value::of(quantity_text(*value)); }
    Value operator()(const Watts* value) const { return Value::of(quantity_text(*value)); }
  };
  return std::visit(Writer{}, target);
}

Schema schema_of(const std::function<void(Fields&)>& visit) {
  SchemaWriter writer;
  visit(writer);
  return writer.take();
}

}  // namespace trainyard::json
