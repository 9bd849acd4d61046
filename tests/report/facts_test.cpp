#include "cli/report/facts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "fixture.h"
#include "sim/simulate/timeline.h"

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

TEST_CASE("a report without any measured share is called uncalibrated") {
  StepReport report;
  CHECK(!is_calibrated(report));
  report.basis = {{Basis::analytic, 1.0}, {Basis::measured, 0.0}};
  CHECK(!is_calibrated(report));
  CHECK(describe_basis(report).find("uncalibrated") == 0);
  report.basis[1].fraction = 0.01;
  CHECK(is_calibrated(report));
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
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    names.push_back(name(static_cast<MemoryCategory>(i)));
    CHECK(title(static_cast<MemoryCategory>(i)) != "?");
  }
  for (std::size_t i = 0; i < kSliceKinds; ++i)
    names.push_back(name(static_cast<SliceKind>(i)));
  std::sort(names.begin(), names.end());
  // "optimizer" is a part of the step and a kind of slice, "context" of the memory and a kind.
  CHECK(std::unique(names.begin(), names.end()) - names.begin() ==
        static_cast<std::ptrdiff_t>(names.size()) - 2);
}
