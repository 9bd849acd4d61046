#include "sim/json/writer.h"

#include "sim/base/check.h"
#include "sim/json/told_fields.h"

namespace trainyard::json {
namespace {

class Writer : public ToldFields {
 public:
  Value take() { return std::move(object_); }
  void source(const FieldInfo&) override {}

 protected:
  bool told(const FieldInfo& info, Value value) override {
    object_.set(info.key, std::move(value));
    return false;
  }
  bool scalar(const FieldInfo& info, Target target) override { return told(info, json_of(target)); }
  bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                 std::size_t& chosen) override {
    TRAINYARD_CHECK(chosen < names.size() || info.need == Need::optional, "no name for {}",
                    info.key);
    return ToldFields::choice_of(info, names, chosen);
  }
  bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    return told(info, object_of(visit));
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
    return told(info, std::move(list));
  }
  bool members(const FieldInfo& info, const std::vector<std::string>& names,
               const std::function<void(const std::vector<std::string>&)>&,
               const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    if (names.empty()) return false;
    Writer inside;
    for (std::size_t i = 0; i < names.size(); ++i)
      visit(inside, names[i], i);
    return told(info, std::move(inside.object_));
  }

 private:
  Value object_ = Value::object();
};

}  // namespace

Value object_of(const std::function<void(Fields&)>& visit) {
  Writer writer;
  visit(writer);
  return writer.take();
}

}  // namespace trainyard::json
