#include "sim/json/value.h"

#include <doctest/doctest.h>

#include "sim/json/parse.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using json::Value;

namespace {

Value parsed(std::string_view text, const std::string& file = "f") {
  std::vector<Diagnostic> diagnostics;
  Value value = json::parse_text(text, file, diagnostics);
  REQUIRE(diagnostics.empty());
  return value;
}

std::string merged(std::string_view target, std::string_view patch) {
  Value value = parsed(target);
  json::merge_patch(value, parsed(patch));
  return json::to_text(value, -1);
}

}  // namespace

// The test cases of RFC 7396, appendix A.
TEST_CASE("merge patches follow RFC 7396") {
  CHECK(merged(R"({"a":"b"})", R"({"a":"c"})") == R"({"a": "c"})");
  CHECK(merged(R"({"a":"b"})", R"({"b":"c"})") == R"({"a": "b", "b": "c"})");
  CHECK(merged(R"({"a":"b"})", R"({"a":null})") == "{}");
  CHECK(merged(R"({"a":"b","b":"c"})", R"({"a":null})") == R"({"b": "c"})");
  CHECK(merged(R"({"a":["b"]})", R"({"a":"c"})") == R"({"a": "c"})");
  CHECK(merged(R"({"a":"c"})", R"({"a":["b"]})") == R"({"a": ["b"]})");
  CHECK(merged(R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})") == R"({"a": {"b": "d"}})");
  CHECK(merged(R"(["a","b"])", R"(["c","d"])") == R"(["c", "d"])");
  CHECK(merged(R"({"a":"foo"})", "null") == "null");
  CHECK(merged(R"({"e":null})", R"({"a":1})") == R"({"e": null, "a": 1})");
  CHECK(merged("[1,2]", R"({"a":"b","c":null})") == R"({"a": "b"})");
  CHECK(merged("{}", R"({"a":{"bb":{"ccc":null}}})") == R"({"a": {"bb": {}}})");
}

TEST_CASE("a merged value keeps the place where it was written") {
  Value base = parsed("{\"a\": {\"x\": 1,\n\"y\": 2}}", "base");
  json::merge_patch(base, parsed("\n\n{\"a\": {\"y\": 3}}", "patch"));
  CHECK(json::find(base, "/a/x")->at.position().file == "base");
  CHECK(json::find(base, "/a/y")->at.position().file == "patch");
  CHECK(json::find(base, "/a/y")->at.line == 3);
}

TEST_CASE("pointers find and set, through arrays and escaped keys") {
  Value root = parsed(R"({"a": [{"b/c": 1}, 2], "m~n": 3})");
  CHECK(json::find(root, "/a/0/b~1c")->text == "1");
  CHECK(json::find(root, "/m~0n")->text == "3");
  CHECK(json::find(root, "")->is(json::Kind::object));
  CHECK(json::find(root, "/a/2") == nullptr);
  CHECK(json::find(root, "/a/00") == nullptr);
  CHECK(json::set(root, "/new/deep", Value::of(7)));
  CHECK(json::set(root, "/a/1", Value::of("x")));
  CHECK_FALSE(json::set(root, "/a/9", Value::of(1)));
  CHECK_FALSE(json::set(root, "/m~0n/x", Value::of(1)));
  CHECK(json::to_text(root, -1) == R"({"a": [{"b/c": 1}, "x"], "m~n": 3, "new": {"deep": 7}})");
}

TEST_CASE("text written is text read, in the same order") {
  const std::string text =
      "{\n  \"b\": [1, 2.5, \"x\\\"\\n\"],\n  \"a\": {\n    \"c\": null\n  },\n"
      "  \"e\": {}\n}";
  CHECK(json::to_text(parsed(text)) == text);
  CHECK(json::to_text(Value::of(0.1), -1) == "0.1");
  CHECK(json::to_text(Value::of("\x1b"), -1) == "\"\\u001b\"");
}
