#include "sim/json/reader.h"

#include <doctest/doctest.h>

#include <array>

#include "sim/json/parse.h"
#include "sim/json/schema.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

enum class Mode { fast_path, slow };
constexpr std::array<json::Choice<Mode>, 2> kModes = {
    {{"fast_path", Mode::fast_path}, {"slow", Mode::slow}}};

struct Engine {
  BytesPerSecond bandwidth{1e9};
  Duration latency{};
};
void visit_fields(json::Fields& f, Engine& e) {
  f.field("bandwidth", e.bandwidth, json::required, json::positive, "Per direction.");
  f.field("latency", e.latency, json::optional, "Of one hop.");
}

struct Sample {
  std::int64_t batch = 1;
  double share = 0.5;
  bool overlap = true;
  std::string label;
  std::uint64_t seed = 0;
  std::optional<int> degree;
  Mode mode = Mode::slow;
  Engine engine;
  std::vector<Engine> spare;
  std::vector<double> ratios;
  std::string split = "even";
  std::vector<int> splits;
};
void visit_fields(json::Fields& f, Sample& s) {
  f.field("batch", s.batch, json::required, json::at_least(1), "Sequences.");
  f.field("share", s.share, json::optional, json::ratio, "Share.");
  f.field("overlap", s.overlap, json::optional, "Overlap.");
  f.field("label", s.label, json::optional, "Label.");
  f.field("seed", s.seed, json::optional, "Seed.");
  f.field("degree", s.degree, json::at_least(1), "Degree.");
  f.choice("mode", s.mode, kModes, json::optional, "Mode.");
  f.section("engine", s.engine, json::required, "Engine.");
  f.sections("spare", s.spare, json::optional, "Spare engines.");
  f.list("ratios", s.ratios, json::optional, json::at_least(1), "Ratios.");
  constexpr std::array<std::string_view, 2> kSplits = {"even", "balanced"};
  f.numbers_or_name({"split", json::optional, json::at_least(1), "Split."}, kSplits, s.split,
                    s.splits);
  f.unsupported("experts", "mixture of experts; dense layers are", {"1"});
  f.accepted("$schema", "For editors.");
}

struct Read {
  Sample sample;
  std::string problems;
};
Read read(std::string_view text, const json::KeyIndex* known = nullptr) {
  std::vector<Diagnostic> diagnostics;
  const json::Value value = json::parse_text(text, "f", diagnostics);
  Read out;
  json::read_object(value, "", out.sample, diagnostics, known);
  for (const Diagnostic& diagnostic : diagnostics) {
    if (!out.problems.empty()) out.problems += '\n';
    out.problems += to_text(diagnostic);
  }
  return out;
}

const std::string kGood = R"("batch": 8, "engine": {"bandwidth": "400Gbps"})";

}  // namespace

TEST_CASE("a complete object is read into its struct") {
  const Read read_all =
      read(R"({"$schema": "x", "batch": 8.0, "share": 1, "overlap": false, "label": "a",
    "seed": 18446744073709551615, "degree": 4, "mode": "fast-path", "x-note": {"any": 1},
    "engine": {"bandwidth": "400Gbps", "latency": "2us"}, "spare": [{"bandwidth": "1GB/s"}],
    "ratios": [1, 2.5], "split": [3, 4], "experts": 1})");
  CHECK(read_all.problems == "");
  const Sample& s = read_all.sample;
  CHECK(s.batch == 8);
  CHECK(s.share == 1);
  CHECK_FALSE(s.overlap);
  CHECK(s.seed == 18446744073709551615U);
  CHECK(s.degree == 4);
  CHECK(s.mode == Mode::fast_path);
  CHECK(s.engine.bandwidth == BytesPerSecond(50e9));
  CHECK(s.engine.latency == Duration(2'000'000));
  CHECK(s.spare.size() == 1);
  CHECK(s.ratios == std::vector<double>{1, 2.5});
  CHECK(s.splits == std::vector<int>{3, 4});
  CHECK(s.split == "");
}

TEST_CASE("every mistake is reported in one reading, each with its place and cure") {
  CHECK(
      read(R"({"batch": 0, "share": "50%", "overlap": "yes", "degree": 1.5, "mode": "fst_path",
 "engine": {"bandwidth": 200, "latncy": "2us"}, "split": "evn", "seed": -1, "experts": 8})")
          .problems ==
      "f:1:11: error: /batch: expected at least 1, got 0\n"
      "f:1:23: error: /share: expected a number, got \"50%\"\n"
      "f:1:41: error: /overlap: expected true or false, got \"yes\"\n"
      "f:2:73: error: /seed: expected a whole number from 0 on, got -1\n"
      "f:1:58: error: /degree: expected a whole number, got 1.5\n"
      "f:1:71: error: /mode: unknown mode \"fst_path\"; did you mean \"fast_path\"? known: "
      "fast_path, "
      "slow\n"
      "f:2:26: error: /engine/bandwidth: 200 has no unit; write \"200Gbps\" (bits) or \"200GB/s\" "
      "(bytes)\n"
      "f:2:31: error: /engine/latncy: unknown key; did you mean \"latency\"?\n"
      "f:2:58: error: /split: unknown split \"evn\"; did you mean \"even\"? known: even, balanced\n"
      "f:2:88: error: /experts: mixture of experts is not supported yet; dense layers are");
  CHECK(read("{}").problems ==
        "f:1:1: error: /batch: is required and missing; Sequences.\n"
        "f:1:1: error: /engine: is required and missing; Engine.");
  CHECK(read("[]").problems == "f:1:1: error: expected an object, got an array");
  CHECK(read("{" + kGood + R"(, "spare": [{}], "ratios": [0.5], "share": null})").problems ==
        "f:1:60: error: /spare/0/bandwidth: is required and missing; Per direction.\n"
        "f:1:76: error: /ratios/0: expected at least 1, got 0.5");
  CHECK(read(R"({"batch": null, "engine": {"bandwidth": "0GB/s"}})").problems ==
        "f:1:11: error: /batch: expected a whole number, got null\n"
        "f:1:41: error: /engine/bandwidth: expected above 0, got \"0GB/s\"");
}

TEST_CASE("a key of another section is sent where it belongs") {
  Sample sample;
  const json::KeyIndex known = json::keys_of([&](json::Fields& f) { visit_fields(f, sample); });
  CHECK(read("{" + kGood + R"(, "bandwidth": "1GB/s"})", &known).problems ==
        "f:1:50: error: /bandwidth: unknown key; it belongs under /engine");
}

TEST_CASE("the schema has every key of the table, its bounds and its defaults") {
  Sample sample;
  const json::Schema schema = json::schema_of([&](json::Fields& f) { visit_fields(f, sample); });
  const json::Value& shape = schema.shape;
  CHECK(json::find(shape, "/properties/batch/minimum")->text == "1");
  CHECK(json::find(shape, "/properties/share/exclusiveMinimum")->text == "0");
  CHECK(json::find(shape, "/properties/mode/default")->text == "slow");
  CHECK(json::find(shape, "/properties/engine/properties/bandwidth/pattern") != nullptr);
  CHECK(json::find(shape, "/properties/spare/items/required/0")->text == "bandwidth");
  CHECK(json::find(shape, "/properties/ratios/items/minimum")->text == "1");
  CHECK(json::to_text(*json::find(shape, "/properties/experts/enum"), -1) == "[1]");
  CHECK(json::to_text(schema.complete, -1) ==
        R"({"required": ["batch", "engine"], )"
        R"("properties": {"engine": {"required": ["bandwidth"]}}})");
}

TEST_CASE("explain gives every value with its origin") {
  std::vector<Diagnostic> diagnostics;
  const json::Value value = json::parse_text("{" + kGood + "}", "f", diagnostics);
  Sample sample;
  json::read_object(value, "", sample, diagnostics);
  const std::vector<json::Explained> lines =
      json::explain(value, [&](json::Fields& f) { visit_fields(f, sample); });
  REQUIRE(lines.size() == 8);  // an empty label is no value
  CHECK(lines[0].pointer == "/batch");
  CHECK(lines[0].value == "8");
  CHECK(lines[0].origin.line == 1);
  CHECK(lines[1].pointer == "/share");
  CHECK(lines[1].origin.file == "default");
  CHECK(lines[5].pointer == "/engine/bandwidth");
  CHECK(lines[5].value == "\"50GB/s\"");
}

namespace {

constexpr std::array<std::string_view, 2> kShapes = {"box", "ball"};
struct Shape {
  std::size_t kind = 0;
  int edge = 0, radius = 0;
};
void visit_fields(json::Fields& f, Shape& s) {
  f.alternatives({"kind", json::optional, json::anything, "Kind."}, kShapes, s.kind,
                 [&s](json::Fields& fields) {
                   if (s.kind == 0)
                     fields.field("edge", s.edge, json::required, "Edge.");
                   else
                     fields.field("radius", s.radius, json::required, "Radius.");
                 });
}

}  // namespace

TEST_CASE("a kind that is left out is the usual one, and only it may be") {
  const auto read_shape = [](std::string_view text, Shape& shape) {
    std::vector<Diagnostic> diagnostics;
    json::read_object(json::parse_text(text, "f", diagnostics), "", shape, diagnostics);
    return diagnostics.size();
  };
  Shape shape;
  CHECK(read_shape(R"({"edge": 3})", shape) == 0);
  CHECK(shape.edge == 3);
  CHECK(read_shape(R"({"kind": null, "edge": 4})", shape) == 0);
  CHECK(shape.edge == 4);
  CHECK(read_shape(R"({"kind": "ball", "radius": 5})", shape) == 0);
  CHECK(shape.radius == 5);
  Shape usual;
  CHECK(read_shape(R"({"radius": 5})", usual) == 2);  // no edge, and what is a radius?
  const json::Schema schema = json::schema_of([](json::Fields& f) {
    Shape any;
    visit_fields(f, any);
  });
  CHECK(json::to_text(schema.complete, -1) ==
        R"({"anyOf": [{"required": ["edge"], "properties": {"kind": {"enum": ["box"]}}}, )"
        R"({"required": ["kind", "radius"], "properties": {"kind": {"enum": ["ball"]}}}]})");
}

namespace {

struct Optional {
  Option<int> depth = 2;
  Option<Mode> mode = Mode::slow;
};
void visit_fields(json::Fields& f, Optional& s) {
  f.field("depth", s.depth, json::between(1, 9), "Depth.");
  f.choice("mode", s.mode, kModes, json::optional, "Mode.");
}

}  // namespace

TEST_CASE("an option keeps its default until it is said, and knows which of the two it is") {
  const auto read_options = [](std::string_view text) {
    Optional options;
    std::vector<Diagnostic> diagnostics;
    json::read_object(json::parse_text(text, "f", diagnostics), "", options, diagnostics);
    CHECK(diagnostics.empty());
    return options;
  };
  Optional silent = read_options("{}");
  CHECK(silent.depth == 2);
  CHECK_FALSE(silent.depth.is_said());
  CHECK_FALSE(silent.mode.is_said());
  silent.depth.otherwise(5);
  CHECK(silent.depth == 5);
  CHECK_FALSE(silent.depth.is_said());

  Optional said = read_options(R"({"depth": 2, "mode": "fast_path"})");
  said.depth.otherwise(5);
  CHECK(said.depth == 2);
  CHECK(said.depth.is_said());
  CHECK(said.mode == Mode::fast_path);
  CHECK(said.mode.is_said());
}
