// What a schema says of a field's default and bounds.
#include "sim/json/schema.h"

#include <doctest/doctest.h>

#include <array>
#include <optional>

#include "sim/base/option.h"
#include "sim/json/field_rows.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

enum class Word { one, two };
constexpr std::array<json::Choice<Word>, 2> kWords = {{{"one", Word::one}, {"two", Word::two}}};

std::vector<std::string> names() {
  return {"a", "b"};
}

struct Defaults {
  int plain = 3;
  Option<int> fixed = 4, derived = depends(5);
  Option<Word> word = Word::two, derived_word = depends(Word::two);
  std::optional<int> none;
  BytesPerSecond not_stated;
  std::string empty;
};
void visit_fields(json::Fields& f, Defaults& s) {
  f.field("plain", s.plain, json::optional, json::at_least(1), "");
  f.field("fixed", s.fixed, json::between(1, 9), "");
  f.field("derived", s.derived, json::between(1, 9), "");
  f.choice("word", s.word, kWords, json::optional, "");
  f.choice("derived_word", s.derived_word, kWords, json::optional, "");
  f.field("none", s.none, json::anything, "");
  f.field("not_stated", s.not_stated, json::optional, json::positive, "");
  f.field("empty", s.empty, json::optional, "");
  f.source({.key = "preset", .need = json::optional, .about = "", .known = names});
}

void visit(json::Fields& f) {
  Defaults defaults;
  visit_fields(f, defaults);
}

std::string said(const char* pointer) {
  const json::Schema schema = json::schema_of(visit);
  const json::Value* value = json::find(schema.shape, std::string("/properties") + pointer);
  return value != nullptr ? json::to_text(*value, -1) : "";
}

}  // namespace

TEST_CASE("a schema states only defaults that are always the same and can be written") {
  CHECK(said("/plain/default") == "3");
  CHECK(said("/fixed/default") == "4");
  CHECK(said("/word/default") == "\"two\"");
  for (const char* pointer : {"/derived", "/derived_word", "/none", "/not_stated", "/empty"}) {
    CAPTURE(pointer);
    CHECK(said(pointer) != "");
    CHECK(said((std::string(pointer) + "/default").c_str()) == "");
  }
}

TEST_CASE("a number of 32 bits has a maximum in the schema") {
  CHECK(said("/plain/maximum") == "2147483647");
  CHECK(said("/fixed/maximum") == "9");
}

TEST_CASE("names that a text may be are offered, and any other text is one") {
  CHECK(said("/preset/anyOf/0/enum") == R"(["a", "b"])");
  CHECK(said("/preset/anyOf/1/type") == R"("string")");
}

TEST_CASE("rows for people say what the schema says") {
  const std::vector<json::FieldRow> rows = json::rows_of(visit);
  REQUIRE(rows.size() == 9);
  CHECK(rows[0].value == "whole number, at least 1");
  CHECK(rows[0].otherwise == "3");
  CHECK(rows[2].otherwise == "");
  CHECK(rows[3].value == "one of `one`, `two`");
  CHECK(rows[3].otherwise == "\"two\"");
  CHECK(rows[3].example == "\"one\"");
  CHECK(rows[6].value == "bandwidth, above 0");
  CHECK(rows[6].otherwise == "");
}
