// docs/scenario.md: up to date, and of one mind with the schema.
#include "sim/scenario/reference.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "sim/json/parse.h"
#include "sim/scenario/scenario.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using json::Value;

const std::string kDocs = std::string(TRAINYARD_SOURCE_DIR) + "/docs/";

// Defaults by pointer, "" for none; a key of several kinds has all of theirs.
using Defaults = std::map<std::string, std::set<std::string>>;

void collect(const Value& schema, const std::string& pointer, Defaults& found) {
  for (const char* word : {"anyOf", "oneOf"})
    if (const Value* branches = schema.find(word))
      for (const Value& branch : branches->items)
        collect(branch, pointer, found);
  if (const Value* properties = schema.find("properties")) {
    for (const json::Member& member : properties->members) {
      const Value* otherwise = member.value.find("default");
      found[pointer + "/" + member.key].insert(otherwise != nullptr ? json::to_text(*otherwise, -1)
                                                                    : "");
      collect(member.value, pointer + "/" + member.key, found);
    }
  }
  if (const Value* items = schema.find("items")) collect(*items, pointer + "/0", found);
  if (const Value* named = schema.find("additionalProperties");
      named != nullptr && named->is(json::Kind::object)) {
    found[pointer + "/NAME"].insert("");
    collect(*named, pointer + "/NAME", found);
  }
}

Defaults of_schema() {
  std::vector<Diagnostic> none;
  Defaults found;
  collect(json::parse_text(schema_json(), "schema", none), "", found);
  return found;
}

// What the page tells where the same object stands first.
std::string told_as(std::string pointer) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kRepeated = {
      {{"/cluster/other_nodes/0/node", "/cluster/node"},
       {"/cluster/node/other_gpus/0/gpu", "/cluster/node/gpu"}}};
  for (const auto& [again, first] : kRepeated)
    if (pointer.starts_with(std::string(again) + "/"))
      pointer = std::string(first) + pointer.substr(again.size());
  return pointer;
}

Defaults of_reference() {
  Defaults found;
  for (const json::FieldRow& row : reference_rows())
    found[row.pointer()].insert(row.otherwise);
  return found;
}

}  // namespace

TEST_CASE("the committed page of all keys is the one that the tables write") {
  const std::string path = kDocs + "scenario.md";
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << reference_page();
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  CHECK(text.str() == reference_page());
}

TEST_CASE("the page has every key of the schema with the schema's default") {
  const Defaults reference = of_reference();
  for (const auto& [pointer, defaults] : of_schema()) {
    CAPTURE(pointer);
    const auto row = reference.find(told_as(pointer));
    const bool is_harmless = row == reference.end();  // a key that is refused but for one value
    if (is_harmless)
      CHECK(defaults == std::set<std::string>{""});
    else
      CHECK(row->second == defaults);
  }
  const Defaults schema = of_schema();
  for (const auto& [pointer, defaults] : reference) {
    CAPTURE(pointer);
    CHECK(schema.count(pointer) == 1);
  }
  CHECK(reference.size() > 200);
}

TEST_CASE("every key has an example, what it means, and a page that there is") {
  for (const json::FieldRow& row : reference_rows()) {
    CAPTURE(row.pointer());
    CHECK(std::filesystem::is_regular_file(kDocs + page_of(row)));
    if (row.key != "NAME") CHECK(row.about != "");
    const bool is_free = row.object || row.value == "anything" || row.key == "NAME" ||
                         row.value == "object of names of your own";
    if (is_free) continue;
    CHECK(row.example != "");
    std::vector<Diagnostic> wrong;
    json::parse_text(row.example, "example", wrong);
    CHECK(wrong.empty());
  }
}
