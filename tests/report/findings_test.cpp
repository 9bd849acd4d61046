#include "sim/simulate/report/findings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "fixture.h"
#include "sim/simulate/report/timeline.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("the ideal bubble is (p - 1) / (m v) for schedules that flush") {
  StepReport report;
  report.stages = 4, report.microbatches = 8, report.schedule = "1f1b";
  CHECK(ideal_bubble(report) == 0.375);
  report.chunks = 2, report.schedule = "interleaved_1f1b";
  CHECK(ideal_bubble(report) == 0.1875);
  report.schedule = "zb-h1";
  CHECK(ideal_bubble(report) == 0);
  report.stages = 1, report.schedule = "1f1b";
  CHECK(ideal_bubble(report) == 0);
}

TEST_CASE("findings are losses, largest first, without what does not matter") {
  const StepReport report = fixture::four_variants()[2].report;
  const std::vector<Finding> found = findings(report);
  REQUIRE(!found.empty());
  CHECK(found[0].category == TimeCategory::bubble);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].category != TimeCategory::compute);
    CHECK(found[i].share >= 0.005);
    if (i > 0) CHECK(found[i].time <= found[i - 1].time);
  }
}

TEST_CASE("ranks that are slower than those of their stage are found, and what they cost") {
  StepReport report;
  report.simulated_step = to_duration(Seconds(10.0));
  const auto rank = [](int number, int count, int stage, double computes) {
    StepReport::RankBreakdown ranks{.rank = number, .count = count, .stage = stage};
    ranks.breakdown[static_cast<std::size_t>(TimeCategory::compute)] =
        to_duration(Seconds(computes));
    return ranks;
  };
  // A stage of more work is no slow rank.
  report.ranks = {rank(0, 7, 0, 4), rank(7, 1, 0, 6.5), rank(8, 8, 1, 9)};
  const std::vector<Finding> found = findings(report);
  REQUIRE(found.size() == 1);
  CHECK(found[0].category == TimeCategory::compute);
  CHECK(found[0].share == about(0.25));
  CHECK(found[0].text.find("Slow rank: rank 7 computes 2.50 s longer") == 0);
  report.ranks = {rank(0, 2, 0, 4), rank(2, 2, 0, 6)};
  CHECK(findings(report).front().text.find("Slow ranks: 2 ranks like rank 2 compute 2.00 s") == 0);
  report.ranks = {rank(0, 4, 0, 4)};
  CHECK(findings(report).empty());
}

TEST_CASE("a bubble names the stage that computes longest, and is none without a pipeline") {
  StepReport report;
  report.simulated_step = to_duration(Seconds(10.0));
  report.breakdown[static_cast<std::size_t>(TimeCategory::bubble)] = to_duration(Seconds(1.0));
  CHECK(findings(report).front().text.find("Waiting for other ranks: 10.0 %") == 0);
  report.pipeline = report.stages = 3;
  for (int stage = 0; stage < 3; ++stage) {
    report.ranks.push_back({.rank = stage, .stage = stage});
    report.ranks.back().breakdown[static_cast<std::size_t>(TimeCategory::compute)] =
        to_duration(Seconds(stage == 2 ? 6.0 : 5.0));
  }
  const std::string text = findings(report).front().text;
  CHECK(text.find("Pipeline bubble: 10.0 %") == 0);
  CHECK(text.find("stage 2 computes 20.0 % longer than the middle one") != std::string::npos);
  report.ranks.pop_back();
  CHECK(findings(report).front().text.find("longer") == std::string::npos);
}

TEST_CASE("a step is described with the length of its documents where that is less") {
  StepReport report;
  report.global_batch = 64, report.sequence_length = 8192;
  CHECK(describe(report).find("global batch 64 samples of 8192 tokens.") != std::string::npos);
  report.document_length = 400;
  CHECK(describe(report).find("of 8192 tokens in documents of 400.") != std::string::npos);
}

TEST_CASE("a report without any measured share is called uncalibrated") {
  StepReport report;
  CHECK(!is_calibrated(report));
  report.basis = {{Basis::analytic, 1.0}, {Basis::measured, 0.0}};
  CHECK(!is_calibrated(report));
  CHECK(describe_basis(report).find("uncalibrated") == 0);
  report.basis[1].fraction = 0.01;
  CHECK(is_calibrated(report));
}

TEST_CASE("a fitted profile is said with its machine, its date and its held-out errors") {
  StepReport report;
  report.profile = "h200";
  report.basis = {{Basis::measured, 0.6}, {Basis::interpolated, 0.4}};
  CHECK(describe_basis(report) ==
        "of the predicted time 60.0 % measured, 40.0 % interpolated (profile h200)");
  report.calibration = Calibration{};
  report.calibration->machine = "8x NVIDIA H200";
  report.calibration->date = "2026-01-31";
  CHECK(
      describe_basis(report).find("; calibrated on 8x NVIDIA H200, 2026-01-31: no sample was held "
                                  "out") != std::string::npos);
  // Every kind is the mean over its held-out cases, and so is the whole.
  report.calibration->date = "2026-01-31T10:00:00Z";
  report.calibration->errors = {{"all-gather on 8 ranks, 1 server", "all", 9, 100, 0, 0.02, 0, 0},
                                {"gemm bf16", "all", 700, 300, 0, 0.06, 0.04, 0.3},
                                {"gemm bf16", "flops >= 1e9", 300, 100, 0, 0.03, 0.02, 0.1},
                                {"gemm fp16", "all", 700, 100, 0, 0.02, 0.04, 0.3},
                                {"memory softmax forward", "all", 50, 0, 0, 0.5, 0.5, 0.5},
                                {"send and receive, one server", "all", 9, 100, 0, 0.04, 0, 0}};
  CHECK(describe_basis(report) ==
        "of the predicted time 60.0 % measured, 40.0 % interpolated (profile h200); calibrated on "
        "8x NVIDIA H200, 2026-01-31: held-out error 4.3 % (messages 3.0 %, gemm 5.0 %)");
}

TEST_CASE("what is extrapolated is a warning, the largest parts by name, like reasons together") {
  StepReport report;
  CHECK(describe_extrapolation(report).empty());
  CHECK(all_warnings(report).empty());
  report.warnings = {"another"};
  report.extrapolated = {{"gemm bf16 8192x128256x16384", "n is beyond the 65536 fitted", 0.081}};
  CHECK(describe_extrapolation(report) ==
        "8.1 % of the predicted time is extrapolated: gemm bf16 8192x128256x16384: n is beyond the "
        "65536 fitted (8.1 %)");
  CHECK(all_warnings(report) ==
        std::vector<std::string>{describe_extrapolation(report), "another"});
  for (const char* const what : {"softmax", "dropout", "rope", "pooling"})
    report.extrapolated.push_back({what, "no law of its kind", 0.03});
  CHECK(
      describe_extrapolation(report) ==
      "20.1 % of the predicted time is extrapolated: softmax, dropout, rope and 1 more: no law of "
      "its kind (12.0 %); gemm bf16 8192x128256x16384: n is beyond the 65536 fitted (8.1 %)");
  report.extrapolated.push_back({"all-reduce", "fewer bytes", 0.02});
  report.extrapolated.push_back({"copy", "more bytes", 0.01});
  const std::string text = describe_extrapolation(report);
  CHECK(text.find("23.1 % of") == 0);
  CHECK(text.ends_with("all-reduce: fewer bytes (2.0 %); and 1 more reason"));
}

TEST_CASE("counts have three digits") {
  CHECK(count_text(1'313'000'000) == "1.31 B");
  CHECK(count_text(12'345) == "12.3 k");
  CHECK(count_text(8) == "8");
  CHECK(count_text(9876) == "9876");
  CHECK(count_text(405e9) == "405 B");
  CHECK(count_text(35.44) == "35.4");
}

TEST_CASE("every category has a name of its own") {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < kTimeCategories; ++i) {
    names.push_back(name(static_cast<TimeCategory>(i)));
    CHECK(title(static_cast<TimeCategory>(i)) != "?");
    CHECK(meaning(static_cast<TimeCategory>(i)) != "?");
  }
  for (std::size_t i = 0; i < kMemoryKinds; ++i) {
    names.push_back(name(static_cast<MemoryKind>(i)));
    CHECK(title(static_cast<MemoryKind>(i)) != "?");
  }
  for (std::size_t i = 0; i < kSliceKinds; ++i)
    names.push_back(name(static_cast<SliceKind>(i)));
  std::sort(names.begin(), names.end());
  // "optimizer" and "input" are parts of the step and kinds of slice, "context" of the memory and
  // a kind.
  CHECK(std::unique(names.begin(), names.end()) - names.begin() ==
        static_cast<std::ptrdiff_t>(names.size()) - 3);
}
