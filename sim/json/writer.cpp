#include "sim/json/writer.h"

#include "sim/base/check.h"

namespace trainyard::json {
namespace {

// Every member says false, "nothing was read", so that the struct keeps its values.
class Writer : public Fields {
 public:
  Value take() { return std::move(object_); }

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
    return put(info, numbers.empty() ? Value::of(name) : std::move(list));
  }
  void unsupported(std::string_view, std::string_view,
                   std::initializer_list<std::string_view>) override {}
  void accepted(std::string_view, std::string_view) override {}
  void source(const FieldInfo&) override {}
  void problem(std::string_view, std::string, std::string) override {}

 protected:
  bool scalar(const FieldInfo& info, Target target) override { return put(info, json_of(target)); }
  bool maybe(const FieldInfo& info, Target target, bool has_value) override {
    return has_value && put(info, json_of(target));
  }
  bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                 std::size_t& chosen) override {
    TRAINYARD_CHECK(chosen < names.size() || info.need == Need::optional, "no name for {}",
                    info.key);
    return chosen < names.size() && put(info, Value::of(names[chosen]));
  }
  bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    return put(info, object_of(visit));
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
    return name.empty() ? nested(info, visit) : put(info, Value::of(name));
  }
  bool array(const FieldInfo& info, std::size_t size, const std::function<void(std::size_t)>&,
             const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    if (size == 0 && info.need == Need::optional) return false;
    Value list = Value::array();
    for (std::size_t i = 0; i < size; ++i) {
      Writer item;
      visit(item, "item", i);
      TRAINYARD_CHECK(item.object_.members.size() == 1, "an item of {} without a value", info.key);
      list.append(std::move(item.object_.members.front().value));
    }
    return put(info, std::move(list));
  }
  bool members(const FieldInfo& info, const std::vector<std::string>& names,
               const std::function<void(const std::vector<std::string>&)>&,
               const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    if (names.empty()) return false;
    Writer inside;
    for (std::size_t i = 0; i < names.size(); ++i)
      visit(inside, names[i], i);
    return put(info, std::move(inside.object_));
  }

 private:
  bool put(const FieldInfo& info, Value value) {
    object_.set(info.key, std::move(value));
    return false;
  }
  Value object_ = Value::object();
};

}  // namespace

Value object_of(const std::function<void(Fields&)>& visit) {
  Writer writer;
  visit(writer);
  return writer.take();
}

}  // namespace trainyard::json
