// Fields whose values are told to somebody, none read.
#pragma once

#include "sim/json/fields.h"
#include "sim/json/value.h"

namespace trainyard::json {

// Every member says false, "nothing was read", so that the struct keeps its values.
class ToldFields : public Fields {
 public:
  void alternatives(const FieldInfo& info, std::span<const std::string_view> names,
                    std::size_t& chosen,
                    const std::function<void(Fields&)>& visit_chosen) override {
    choice_of(info, names, chosen);
    visit_chosen(*this);
  }
  bool numbers_or_name(const FieldInfo& info, std::span<const std::string_view>, std::string& name,
                       std::vector<int>& numbers) override {
    Value list = Value::array();
    for (const int number : numbers)
      list.append(Value::of(number));
    return told(info, numbers.empty() ? Value::of(name) : std::move(list));
  }
  void unsupported(std::string_view, std::string_view,
                   std::initializer_list<std::string_view>) override {}
  void accepted(std::string_view, std::string_view, bool) override {}
  void problem(std::string_view, std::string, std::string) override {}

 protected:
  virtual bool told(const FieldInfo& info, Value value) = 0;

  bool maybe(const FieldInfo& info, Target target, bool has_value) override {
    return has_value && told(info, json_of(target));
  }
  bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                 std::size_t& chosen) override {
    return chosen < names.size() && told(info, Value::of_name(names[chosen]));
  }
  bool maybe_nested(const FieldInfo& info, bool has_value,
                    const std::function<void(Fields&)>& visit) override {
    return has_value && nested(info, visit);
  }
  bool nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    return nested(info, visit);
  }
  bool name_or_nested(const FieldInfo& info, std::span<const std::string_view>, std::string& name,
                      const std::function<void(Fields&)>& visit) override {
    return name.empty() ? nested(info, visit) : told(info, Value::of(name));
  }
};

}  // namespace trainyard::json
