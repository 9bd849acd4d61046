#include "sim/json/field_rows.h"

#include <fmt/format.h>

#include "sim/json/field_words.h"
#include "sim/json/value.h"

namespace trainyard::json {
namespace {

// What a value of a type is called, and one of its values.
struct TypeWords {
  const char* words;
  const char* example;
};
struct TypeNamer {
  TypeWords operator()(const bool*) const { return {"true or false", "true"}; }
  TypeWords operator()(const int*) const { return {"whole number", ""}; }
  TypeWords operator()(const std::int64_t*) const { return {"whole number", ""}; }
  TypeWords operator()(const std::uint64_t*) const { return {"whole number", ""}; }
  TypeWords operator()(const double*) const { return {"number", ""}; }
  TypeWords operator()(const std::string*) const { return {"text", ""}; }
  TypeWords operator()(const Bytes*) const { return {"size", "\"25MiB\""}; }
  TypeWords operator()(const Duration*) const { return {"time", "\"2us\""}; }
  TypeWords operator()(const Seconds*) const { return {"time", "\"2us\""}; }
  TypeWords operator()(const BytesPerSecond*) const { return {"bandwidth", "\"25GB/s\""}; }
  TypeWords operator()(const FlopsPerSecond*) const { return {"rate", "\"312TFLOP/s\""}; }
  TypeWords operator()(const Watts*) const { return {"power", "\"700W\""}; }
};

std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names)
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  return text;
}

// The first name that is not the default says more than the default does.
std::string other_name(std::span<const std::string_view> names, std::string_view usual) {
  for (const std::string_view name : names)
    if (name != usual) return to_text(Value::of_name(name), -1);
  return names.empty() ? "" : to_text(Value::of_name(names.front()), -1);
}

class RowCollector : public Fields {
 public:
  RowCollector(std::string section, std::string kind, std::vector<FieldRow>& rows)
      : section_(std::move(section)), kind_(std::move(kind)), rows_(rows) {}

  void alternatives(const FieldInfo& info, std::span<const std::string_view> names,
                    std::size_t& chosen,
                    const std::function<void(Fields&)>& visit_chosen) override {
    const std::size_t usual = chosen;
    for (std::size_t i = 0; i < names.size(); ++i) {
      RowCollector branch(section_, std::string(names[i]), rows_);
      FieldRow row = branch.row_of(info);
      row.value = "one of " + listed(names);
      row.example = fmt::format("\"{}\"", names[i]);
      row.required = i != usual || info.need == Need::required;
      if (!row.required) row.otherwise = row.example;
      rows_.push_back(std::move(row));
      chosen = i;
      visit_chosen(branch);
    }
    chosen = usual;
  }
  bool numbers_or_name(const FieldInfo& info, std::span<const std::string_view> names,
                       std::string& name, std::vector<int>&) override {
    FieldRow row = row_of(info);
    row.value = fmt::format("one of {}, or a list of whole numbers{}", listed(names),
                            bounds_text(info.bounds));
    if (is_stated(info) && !name.empty()) row.otherwise = fmt::format("\"{}\"", name);
    row.example = other_name(names, name);
    return put(std::move(row));
  }
  void unsupported(std::string_view, std::string_view,
                   std::initializer_list<std::string_view>) override {}
  void accepted(std::string_view key, std::string_view about, bool) override {
    FieldRow row = row_of({key, Need::optional, anything, about});
    row.value = "anything";
    put(std::move(row));
  }
  void source(const FieldInfo& info) override {
    FieldRow row = row_of(info);
    row.value = "text";
    put(std::move(row));
  }
  void problem(std::string_view, std::string, std::string) override {}

 protected:
  bool scalar(const FieldInfo& info, Target target) override {
    FieldRow row = row_of(info);
    const TypeWords type = std::visit(TypeNamer{}, target);
    const std::string bounds = describe(info.bounds, target);
    row.value = type.words + (bounds.empty() ? "" : ", " + bounds);
    row.example = type.example;
    if (is_stated(info) && can_be_said(info.bounds, target)) {
      row.otherwise = to_text(json_of(target), -1);
      if (row.otherwise == "true") row.example = "false";
    }
    return put(std::move(row));
  }
  bool maybe(const FieldInfo& info, Target target, bool) override { return scalar(info, target); }
  bool choice_of(const FieldInfo& info, std::span<const std::string_view> names,
                 std::size_t& chosen) override {
    FieldRow row = row_of(info);
    row.value = "one of " + listed(names);
    const std::string_view usual = chosen < names.size() ? names[chosen] : "";
    if (is_stated(info) && !usual.empty()) row.otherwise = to_text(Value::of_name(usual), -1);
    row.example = other_name(names, usual);
    return put(std::move(row));
  }
  bool nested(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    return object(info, "object", visit);
  }
  bool nested_or_name(const FieldInfo& info, const std::function<void(Fields&)>& visit) override {
    return object(info, "name or object", visit);
  }
  bool name_or_nested(const FieldInfo& info, std::span<const std::string_view> names,
                      std::string& name, const std::function<void(Fields&)>& visit) override {
    const std::size_t at = rows_.size();
    object(info, fmt::format("one of {}, or an object", listed(names)), visit);
    if (is_stated(info) && !name.empty()) rows_[at].otherwise = fmt::format("\"{}\"", name);
    rows_[at].example = other_name(names, name);
    return false;
  }
  bool array(const FieldInfo& info, std::size_t, const std::function<void(std::size_t)>& resize,
             const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    const std::size_t at = rows_.size();
    put(row_of(info));
    resize(1);
    RowCollector items(pointer_to(info.key), "", rows_);
    visit(items, "0", 0);
    resize(0);
    const FieldRow item = rows_[at + 1];
    rows_[at].object = item.object;
    rows_[at].value = (info.one_too ? item.value + ", or a list of such" : "list: " + item.value);
    if (!item.example.empty()) rows_[at].example = "[" + item.example + "]";
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    return false;
  }
  bool members(const FieldInfo& info, const std::vector<std::string>&,
               const std::function<void(const std::vector<std::string>&)>& rename,
               const std::function<void(Fields&, std::string_view, std::size_t)>& visit) override {
    put(row_of(info));
    rows_.back().value = "object of names of your own";
    rename({"NAME"});
    RowCollector named(pointer_to(info.key), "", rows_);
    visit(named, "NAME", 0);
    rename({});
    return false;
  }

 private:
  static bool is_stated(const FieldInfo& info) { return info.fixed && info.need == Need::optional; }
  static std::string bounds_text(const Bounds& bounds) {
    const std::string text = describe(bounds);
    return text.empty() ? "" : ", " + text;
  }
  std::string pointer_to(std::string_view key) const {
    return fmt::format("{}/{}", section_, escape_pointer(key));
  }
  FieldRow row_of(const FieldInfo& info) const {
    FieldRow row;
    row.section = section_;
    row.kind = kind_;
    row.key = info.key;
    row.about = info.about;
    row.required = info.need == Need::required;
    return row;
  }
  bool put(FieldRow row) {
    rows_.push_back(std::move(row));
    return false;
  }
  bool object(const FieldInfo& info, std::string value, const std::function<void(Fields&)>& visit) {
    FieldRow row = row_of(info);
    row.value = std::move(value);
    row.object = true;
    put(std::move(row));
    RowCollector child(pointer_to(info.key), "", rows_);
    visit(child);
    return false;
  }

  std::string section_, kind_;
  std::vector<FieldRow>& rows_;
};

}  // namespace

std::vector<FieldRow> rows_of(const std::function<void(Fields&)>& visit) {
  std::vector<FieldRow> rows;
  RowCollector collector("", "", rows);
  visit(collector);
  return rows;
}

}  // namespace trainyard::json
