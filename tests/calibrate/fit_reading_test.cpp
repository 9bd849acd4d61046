// Damaged and contradictory files: every mistake with its line, and never a crash.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/calibrate/synthetic.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

// The diagnostics of a file, one per line, without its folder and name; "" if it is fitted.
std::string problems(const std::string& text) {
  const SampleFile file(SampleFile::Raw{text});
  std::string out;
  try {
    fit_samples({file.path()}, test_options());
  } catch (const ScenarioError& error) {
    for (const Diagnostic& diagnostic : error.diagnostics())
      out += to_text(diagnostic).substr(file.path().size()) + "\n";
  }
  return out;
}

std::string with_machine(const std::string& lines) {
  return fmt::format("{}\n{}", kMachine, lines);
}

constexpr const char* kGood = R"({"kind": "launch", "what": "kernel", "time_us": 2.5})"
                              "\n";

}  // namespace

TEST_CASE("Every mistake is reported with its line") {
  const std::string found = problems(
      with_machine(R"({"kind": "gemm", "dtype": "bf17", "m": 0, "n": 8, "k": 8, "time_us": 1}
{"kind": "copy", "direction": "h2d", "bytes": 1024, "time_us": 0}

{"kind": "attention", "dtype": "bf16"}
{"kind": "memory", "op": "softmax", "read_bytes": 0, "written_bytes": 0, "time_us": "fast"}
not json
)"));
  CHECK(found.find(":2:27: error: /dtype: expected one of fp32, tf32, bf16, fp16, fp8, got "
                   "\"bf17\"; did you mean 'bf16'?") != std::string::npos);
  CHECK(found.find(":2:40: error: /m: expected a whole number from 1 on, got 0") !=
        std::string::npos);
  CHECK(found.find(":3:") != std::string::npos);
  CHECK(found.find("/time_us: is not positive") != std::string::npos);
  CHECK(found.find(":5:1: error: /query_length: is missing") != std::string::npos);
  CHECK(found.find(":6:") != std::string::npos);
  CHECK(found.find("nothing is read and nothing is written") != std::string::npos);
  CHECK(found.find(":7:") != std::string::npos);
}

TEST_CASE("A file of something else is one mistake") {
  CHECK(problems("{\n  \"version\": 1,\n  \"name\": \"x\"\n}\n") ==
        ": error: no line of it is a JSON object; name files that trainyard calibrate, "
        "trainyard-probe or trainyard import has written (docs/samples.md)\n");
}

TEST_CASE("More than twenty mistakes are counted") {
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += "{\"kind\": \"launch\", \"what\": \"kernel\"}\n";
  CHECK(problems(with_machine(lines)).find("and 30 more mistakes") != std::string::npos);
}

TEST_CASE("A file that ends in the middle of a line is read up to there") {
  const SampleFile file(SampleFile::Raw{with_machine(kGood) + R"({"kind": "launch", "wh)"});
  const FitResult result = fit_samples({file.path()}, test_options());
  CHECK(result.profile.launch.count() == about(2.5e-6));
  REQUIRE(result.warnings.size() == 1);
  CHECK(to_text(result.warnings.front()).find(":3:1: warning: the last line is cut off") !=
        std::string::npos);
}

TEST_CASE("Unknown kinds are left out with one warning, unknown keys without") {
  const SampleFile file(SampleFile::Raw{with_machine(
      std::string(kGood) +
      "{\"kind\": \"storage\", \"x\": 1}\n{\"kind\": \"storage\", \"x\": 2}\n" +
      R"({"kind": "launch", "what": "kernel", "time_us": 2.5, "colour": "red"})" + "\n")});
  const FitResult result = fit_samples({file.path()}, test_options());
  REQUIRE(result.warnings.size() == 1);
  CHECK(result.warnings.front().message == "unknown kind 'storage' is left out");
}

TEST_CASE("Several kinds of GPU in one call are refused by name") {
  const SampleFile a(
      std::vector<std::string>{R"({"kind": "launch", "what": "kernel", "time_us": 2})"});
  const SampleFile b(
      std::vector<std::string>{R"({"kind": "launch", "what": "kernel", "time_us": 2})"},
      R"({"kind": "machine", "gpus": [{"name": "Other GPU"}]})");
  try {
    fit_samples({a.path(), b.path()}, test_options());
    FAIL("two kinds of GPU were fitted together");
  } catch (const ScenarioError& error) {
    const std::string text = error.what() + to_text(error.diagnostics().front());
    CHECK(text.find("'Test GPU'") != std::string::npos);
    CHECK(text.find("'Other GPU'") != std::string::npos);
  }
}

TEST_CASE("Missing files, machines and measurements are said so") {
  CHECK(problems("").find("there are no measurements") != std::string::npos);
  CHECK(problems(kGood).find(":1:1: error: a measurement stands before the machine line") !=
        std::string::npos);
  CHECK(problems(with_machine(R"({"kind": "launch", "what": "kernel", "gpu": 3, "time_us": 2})"
                              "\n"))
            .find("/gpu: the run's machine line has 1 GPUs") != std::string::npos);
  CHECK_THROWS_AS(fit_samples({"/no/such/samples.jsonl"}, test_options()), ScenarioError);
  FitOptions none = test_options();
  none.find_gpu = [](const std::string&) { return std::nullopt; };
  const SampleFile file(
      std::vector<std::string>{R"({"kind": "launch", "what": "kernel", "time_us": 2})"});
  CHECK_THROWS_AS(fit_samples({file.path()}, none), ScenarioError);
}

TEST_CASE("No damage to a file crashes the reader or the fit") {
  std::string text = with_machine("");
  for (const std::string& line : gemm_lines(test_gemm_law(), 0.02, 1, 6))
    text += line + "\n";
  for (int power = 10; power < 16; ++power)
    text += collective_line("all-reduce", 8, 1 << power, 1e-5) + "\n";
  text += kGood;
  SplitMix64 random(23);
  const std::string bytes = "{}[],:\"0129-eE.x\n\0\xff";
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = text;
    for (std::uint64_t n = 0; n <= random.below(3); ++n) {
      const std::size_t at = random.below(damaged.size());
      switch (random.below(4)) {
        case 0: damaged[at] = bytes[random.below(bytes.size())]; break;
        case 1: damaged.erase(at, random.below(12)); break;
        case 2: damaged.insert(at, damaged.substr(random.below(at + 1), random.below(20))); break;
        default: damaged.resize(std::max<std::size_t>(at, 1)); break;
      }
    }
    refused += problems(damaged).empty() ? 0 : 1;
  }
  CHECK(refused > 100);
  CHECK(refused < 300);
}
