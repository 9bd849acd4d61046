#include "sim/json/parse.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/support/rooms.h"

using namespace trainyard;
using json::Kind;
using json::Value;

namespace {

// All diagnostics of a text, one per line; empty if it is read.
std::string problems(std::string_view text) {
  std::vector<Diagnostic> diagnostics;
  json::parse_text(text, "f", diagnostics);
  std::string out;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (!out.empty()) out += '\n';
    out += to_text(diagnostic);
  }
  return out;
}

Value parsed(std::string_view text) {
  std::vector<Diagnostic> diagnostics;
  Value value = json::parse_text(text, "f", diagnostics);
  CHECK(diagnostics.empty());
  return value;
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

}  // namespace

TEST_CASE("every value and every key knows its line and column") {
  const Value root =
      parsed("{\n  // note\n  \"a\": 12,\n  \"b\": [true, /* x */ \"s\\\"\\u00e9\"]\n}");
  CHECK(root.at.line == 1);
  CHECK(root.members[0].at.line == 3);
  CHECK(root.members[0].at.column == 3);
  CHECK(root.find("a")->at.column == 8);
  CHECK(root.find("a")->text == "12");
  const Value& list = *root.find("b");
  CHECK(list.at.column == 8);
  CHECK(list.items[0].at.column == 9);
  CHECK(list.items[1].at.line == 4);
  CHECK(list.items[1].at.column == 23);
  CHECK(list.items[1].text == "s\"\xC3\xA9");
}

TEST_CASE("numbers are exact or an error, never rounded") {
  CHECK(json::find_integer(parsed("9007199254740993")) == 9007199254740993);
  CHECK(json::find_integer(parsed("8.0")) == 8);
  CHECK(json::find_integer(parsed("1.5e3")) == 1500);
  CHECK(json::find_integer(parsed("-0")) == 0);
  CHECK_FALSE(json::find_integer(parsed("1.5")).has_value());
  CHECK_FALSE(json::find_integer(parsed("18446744073709551616")).has_value());
  CHECK(problems("1e999999999999") ==
        "f:1:1: error: 1e999999999999 is larger than any number a computer holds");
  CHECK(json::find_unsigned(parsed("18446744073709551615")) == 18446744073709551615U);
  CHECK_FALSE(json::find_unsigned(parsed("18446744073709551616")).has_value());
  CHECK_FALSE(json::find_unsigned(parsed("-1")).has_value());
  CHECK(problems("1e400") == "f:1:1: error: 1e400 is larger than any number a computer holds");
  CHECK(problems("1e-400") == "f:1:1: error: 1e-400 is smaller than any number a computer holds");
  CHECK(json::find_number(parsed("0e-400")) == 0.0);
}

TEST_CASE("what is not JSON is named, with its place and its cure") {
  CHECK(problems("") == "f: error: the file is empty");
  CHECK(problems(" \n ") == "f: error: the file is empty");
  CHECK(problems("{\n \"a\": [1,\n") ==
        "f:3:1: error: the text ends inside an array; close the '[' of line 2");
  CHECK(problems("{\"a\": \"b") ==
        "f:1:7: error: the text ends inside a string; close it with '\"'");
  CHECK(problems("{} x") == "f:1:4: error: text follows after the end of the document");
  CHECK(problems("{\"a\": 1,}") ==
        "f:1:9: error: a comma stands before '}'; remove the last comma");
  CHECK(problems("[1, 2,]") == "f:1:7: error: a comma stands before ']'; remove the last comma");
  CHECK(problems("{'a': 1}") ==
        "f:1:2: error: strings are written in double quotes; write \"...\" for '...'");
  CHECK(problems("{\"a\": NaN}") ==
        "f:1:7: error: JSON has no NaN and no infinity; write a finite number");
  CHECK(problems("{\"a\": -Infinity}") ==
        "f:1:7: error: JSON has no NaN and no infinity; write a finite number");
  CHECK(problems("{\"a\": 012}") ==
        "f:1:7: error: a number starts with a zero; remove the leading zeros");
  CHECK(problems("{\"a\": 0x1F}") ==
        "f:1:7: error: hexadecimal numbers are not JSON; write the number in decimal");
  CHECK(problems("{\"a\": +1}") == "f:1:7: error: a number starts with '+'; remove the '+'");
  CHECK(problems("{\"a\": 1, # hi\n\"b\": 2}") ==
        "f:1:10: error: a comment begins with //; write // for #");
  CHECK(problems("{\"a\": 25MiB}") ==
        "f:1:7: error: a number is followed by other characters; write quantities as strings, e.g. "
        "\"25MiB\"");
  CHECK(problems("{\"a\": True}") == "f:1:7: error: unknown word; write true, false or null");
  CHECK(problems("{\"a\": 1\n \"b\": 2}") ==
        "f:2:2: error: a comma or colon is missing before this");
}

TEST_CASE("bytes that are no JSON text are refused by name") {
  CHECK(problems(std::string("\xFF\xFE{\0}\0", 6)) ==
        "f: error: the text is UTF-16; save it as UTF-8");
  CHECK(problems(std::string("\0{\0}", 4)) == "f: error: the text is UTF-16; save it as UTF-8");
  CHECK(problems("\x1F\x8B\x08") == "f: error: the file is compressed (gzip); run gunzip first");
  CHECK(problems("{\"a\": \"\xC0\xAF\"}") ==
        "f:1:8: error: byte 7 (0xc0) is not UTF-8; save the file as UTF-8");
  CHECK(problems(std::string("{\"a\": \"\0\"}", 10)) == "f:1:8: error: a NUL byte");
  CHECK(problems("{\"a\": \"\\u0000\"}") == "f:1:7: error: a string holds a NUL character");
  CHECK(problems("{\"a\": \"\\ud800\"}").find("f:1:7: error: ") == 0);
  CHECK(problems("{\"a\": \"x\ty\"}").find("f:1:7: error: ") == 0);
  CHECK(problems("\xEF\xBB\xBF{\r\n\"a\": 1}\r\n").empty());
}

TEST_CASE("depth, strings and keys have limits, and nothing recurses") {
  CHECK(problems(nested(64)).empty());
  CHECK(problems(nested(65)) == "f:1:65: error: more than 64 levels of nesting");
  CHECK(problems(std::string(100000, '[')) == "f:1:65: error: more than 64 levels of nesting");
  CHECK(problems("\"" + std::string(70000, 'x') + "\"") ==
        "f:1:1: error: a string of 70000 bytes; at most 65536 are read");
}

TEST_CASE("a duplicate key names both lines and does not end the reading") {
  CHECK(problems("{\"a\": 1,\n\"a\": {\"x\": 1},\n\"a\": 3}") ==
        "f:2:1: error: duplicate key 'a'; it stands on line 1 already\n"
        "f:3:1: error: duplicate key 'a'; it stands on line 1 already");
}

TEST_CASE("only regular files of a bearable size are read") {
  std::vector<Diagnostic> diagnostics;
  json::parse_file("/dev/zero", diagnostics);
  json::parse_file("/", diagnostics);
  json::parse_file("/no/such/file", diagnostics);
  REQUIRE(diagnostics.size() == 3);
  CHECK(to_text(diagnostics[0]) == "/dev/zero: error: is not a regular file");
  CHECK(to_text(diagnostics[1]) == "/: error: is not a regular file");
  CHECK(to_text(diagnostics[2]) ==
        "/no/such/file: error: cannot be read: No such file or directory");
  const std::string path = "json_parse_test.tmp";
  std::ofstream(path) << "[1, 2]";
  json::Limits small;
  small.file_bytes = 5;
  diagnostics.clear();
  json::parse_file(path, diagnostics, small);
  REQUIRE(diagnostics.size() == 1);
  CHECK(diagnostics[0].message == "has 6 bytes; at most 5 are read");
  diagnostics.clear();
  CHECK(json::parse_file(path, diagnostics).items.size() == 2);
  std::remove(path.c_str());
}
