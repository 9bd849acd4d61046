// Whatever happens to a good file of samples, it is refused with diagnostics or gives a profile
// that reads back equal.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tests/calibrate/synthetic.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

// A few lines of every kind.
std::vector<std::string> all_kinds() {
  std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.05, 3, 24);
  const auto add = [&lines](const std::string& line) { lines.push_back(line); };
  for (int i = 0; i < 4; ++i)
    add(gemm_line({512, 512, 512 << i, 8, Dtype::bf16}, 1e-5 * (1 << i)));
  for (int i = 0; i < 6; ++i) {
    const std::int64_t bytes = std::int64_t{4096} << (3 * i);
    const double us = 3 + static_cast<double>(bytes) / 2e6;
    add(fmt::format(R"({{"kind": "memory", "op": "layer-norm", "variant": "forward{}", )"
                    R"("dtype": "bf16", "rows": 8, "columns": 8, "read_bytes": {}, )"
                    R"("written_bytes": {}, "time_us": {:.6g}, "spread": 0.02}})",
                    i % 2 == 0 ? "-warm" : "", bytes, bytes, us));
    for (const char* backward : {"false", "true"})
      add(fmt::format(R"({{"kind": "attention", "implementation": "cudnn", "dtype": "bf16", )"
                      R"("batch": 2, "heads": 8, "kv_heads": 2, "query_length": {0}, )"
                      R"("key_length": {0}, "head_size": 128, "causal": true, "backward": {1}, )"
                      R"("time_us": {2:.6g}}})",
                      256 << i, backward, 10 * std::exp2(2 * i)));
    for (const char* pass : {"forward", "weight_gradient"})
      add(fmt::format(R"({{"kind": "convolution", "pass": "{}", "dtype": "bf16", "batch": 32, )"
                      R"("in_channels": {}, "out_channels": 64, "in_height": 28, "in_width": 28, )"
                      R"("out_height": 28, "out_width": 28, "kernel_height": {}, )"
                      R"("kernel_width": {}, "groups": 1, "time_us": {}}})",
                      pass, 8 << i, i % 2 == 0 ? 1 : 3, i % 2 == 0 ? 1 : 3, 20 + 9 * i));
    add(fmt::format(R"({{"kind": "copy", "direction": "h2d", "pinned": true, "bytes": {}, )"
                    R"("time_us": {:.6g}}})",
                    bytes, us));
    add(fmt::format(R"({{"kind": "p2p", "from": 0, "to": 1, "bytes": {}, "access": "peer", )"
                    R"("mode": "alone", "time_us": {:.6g}}})",
                    bytes, us));
    add(collective_line("all-reduce", 8, bytes, us * 1e-6));
    add(collective_line("all-gather", 2 + i, 1024, (5 + i) * 1e-6, "loopback"));
    add(collective_line("send-recv", 2, bytes, us * 1e-6));
    add(fmt::format(R"({{"kind": "overlap", "victim": "{}", "load": "stream", "channels": {}, )"
                    R"("multiprocessors": 132, "alone_us": 100, "load_alone_us": 9, )"
                    R"("load_us": 10, "time_us": {}}})",
                    i < 3 ? "gemm" : "memory", 4 + 4 * i, 103 + 4 * i));
  }
  for (const char* what : {"kernel", "graph_node", "event_record", "empty_kernel", "round_trip"})
    add(fmt::format(R"({{"kind": "launch", "what": "{}", "time_us": 2.5}})", what));
  return lines;
}

// Puts another number in the place of one of the line's.
void change_number(std::string& line, SplitMix64& random) {
  constexpr std::array<const char*, 16> kNumbers = {
      "0",         "1",    "2",     "3",          "7",
      "1e-9",      "1e-8", "0.001", "4294967296", "999999",
      "65536",     "1e15", "1e300", "-1",         "1125899906842624",
      "2147483648"};
  std::vector<std::size_t> places;
  for (std::size_t i = 2; i < line.size(); ++i)
    if (line[i - 1] == ' ' && line[i - 2] == ':' && line[i] >= '0' && line[i] <= '9')
      places.push_back(i);
  if (places.empty()) return;
  const std::size_t at = places[random.below(places.size())];
  const std::size_t end = line.find_first_of(",}", at);
  line.replace(at, end - at, kNumbers[random.below(kNumbers.size())]);
}

void damage(std::vector<std::string>& lines, SplitMix64& random) {
  const std::size_t changes = 1 + random.below(12);
  for (std::size_t i = 0; i < changes && lines.size() > 1; ++i) {
    const std::size_t at = random.below(lines.size()), other = random.below(lines.size());
    switch (random.below(6)) {
      case 0: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at)); break;
      case 1: lines.push_back(lines[at]); break;
      case 2: std::swap(lines[at], lines[other]); break;
      default: change_number(lines[at], random);
    }
  }
}

}  // namespace

TEST_CASE("Damaged samples are refused or give a profile that reads back equal") {
  const std::vector<std::string> good = all_kinds();
  SplitMix64 random(20);
  int fitted = 0, refused = 0;
  for (int round = 0; round < 120; ++round) {
    std::vector<std::string> lines = good;
    damage(lines, random);
    if (random.below(4) == 0)  // most of it is lost
      lines.resize(1 + random.below(lines.size()));
    CAPTURE(round);
    std::optional<FitResult> result;
    try {
      result = fit_lines(lines);
    } catch (const ScenarioError& error) {
      CHECK_FALSE(error.diagnostics().empty());
      ++refused;
      continue;
    }
    ++fitted;
    CHECK_FALSE(calibration_html(*result).empty());
    CHECK_FALSE(fit_text(*result).empty());
    CHECK_FALSE(fit_json(*result).empty());
    const SampleFile file(SampleFile::Raw{profile_json(result->profile)});
    CHECK(read_profile(file.path()) == result->profile);
  }
  CHECK(fitted >= 20);
  CHECK(refused >= 20);
}

TEST_CASE("Extreme times of every kind are fitted without harm, or refused by the law's name") {
  int refused = 0;
  for (const char* time : {"1e-9", "1e-3", "1e9", "1e15"}) {
    CAPTURE(time);
    for (const bool all : {false, true}) {
      std::vector<std::string> lines = all_kinds();
      for (std::size_t i = 0; i < lines.size(); i += all ? 1 : 3) {
        const std::size_t at = lines[i].find("\"time_us\": ") + 11;
        lines[i].replace(at, lines[i].find_first_of(",}", at) - at, time);
      }
      try {
        const FitResult result = fit_lines(lines);
        const SampleFile file(SampleFile::Raw{profile_json(result.profile)});
        CHECK(read_profile(file.path()) == result.profile);
      } catch (const ScenarioError& error) {
        ++refused;
        for (const Diagnostic& d : error.diagnostics()) {
          CHECK(d.message.rfind("fitted /", 0) == 0);
          CHECK_FALSE(d.hint.empty());
        }
      }
    }
  }
  CHECK(refused > 0);
}
