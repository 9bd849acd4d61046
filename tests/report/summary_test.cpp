#include "sim/simulate/report/summary.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "fixture.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using fixture::reports;
using Json = nlohmann::ordered_json;

namespace {

Duration sum(const Breakdown& breakdown) {
  Duration total{};
  for (const Duration part : breakdown)
    total += part;
  return total;
}

}  // namespace

TEST_CASE("the fixture's breakdowns sum to the step in integer picoseconds on every rank") {
  for (const StepReport& report : reports()) {
    CHECK(sum(report.breakdown) == report.simulated_step);
    for (const auto& rank : report.ranks)
      CHECK(sum(rank.breakdown) == report.simulated_step);
  }
}

TEST_CASE("the breakdown of the summary sums to its step") {
  for (const StepReport& report : reports()) {
    const Json json = Json::parse(to_json(report));
    std::int64_t total = 0;
    for (const auto& [key, value] : json["breakdown_s"].items())
      total += std::llround(value.get<double>() * 1e12);
    CHECK(total == report.simulated_step.count());
  }
}

TEST_CASE("every number of the report is in its summary") {
  const StepReport report = reports()[1];
  const Json json = Json::parse(to_json(report));
  CHECK(json["step_time_s"].get<double>() == Seconds(*report.step_time).count());
  CHECK(json["tokens_per_s"].get<double>() == report.tokens_per_s);
  CHECK(json["tokens_per_s_per_gpu"].get<double>() == report.tokens_per_s_per_gpu);
  CHECK(json["mfu"].get<double>() == report.mfu);
  CHECK(json["hfu"].get<double>() == report.hfu);
  CHECK(json["full_square"]["mfu"].get<double>() == report.full_square_mfu);
  CHECK(json["interval"]["low_s"].get<double>() == Seconds(report.interval->low).count());
  CHECK(json["training"]["gpu_hours"].get<double>() == report.training->gpu_hours);
  CHECK(json["training"]["dollars"].get<double>() == *report.training->dollars);
  CHECK(json["training"]["energy_basis"] == "analytic");
  CHECK(json["world_size"] == 8);
  CHECK(json["pipeline"]["schedule"] == "1f1b");
  CHECK(json["pipeline"]["bubble_fraction"].get<double>() == report.bubble_fraction);
  CHECK(json["memory"]["peak_bytes"] == report.memory.peak.count());
  CHECK(json["engine"]["events"] == report.events);
  CHECK(json["basis"]["measured"] == 0.58);
  CHECK(json["basis"]["extrapolated"] == 0.0);
  CHECK(json["sources"].size() == 3);
  CHECK(json["calibration"]["machine"] == "8x A100-SXM4-40GB");
  CHECK(json["calibration"]["errors"].size() == 3);
  CHECK(json["calibration"]["errors"][0]["mape"] == 0.061);
  CHECK(json["extrapolated"].empty());
}

TEST_CASE(
    "what is extrapolated is listed and warned of; a profile that was not fitted says nothing") {
  StepReport report = reports()[0];
  report.calibration.reset();
  report.extrapolated = {{"softmax", "fewer bytes than the 64 KiB fitted", 0.25}};
  const Json json = Json::parse(to_json(report));
  CHECK(json["calibration"].is_null());
  CHECK(json["extrapolated"][0]["what"] == "softmax");
  CHECK(json["extrapolated"][0]["why"] == "fewer bytes than the 64 KiB fitted");
  CHECK(json["extrapolated"][0]["share"] == 0.25);
  CHECK(json["warnings"][0] ==
        "25.0 % of the predicted time is extrapolated: softmax: fewer bytes "
        "than the 64 KiB fitted (25.0 %)");
}

TEST_CASE("keys stand in a fixed order, the headline first") {
  const Json json = Json::parse(to_json(reports()[0]));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items())
    keys.push_back(key);
  CHECK(keys[0] == "trainyard");
  CHECK(keys[1] == "name");
  const auto at = [&](const char* key) {
    return std::find(keys.begin(), keys.end(), key) - keys.begin();
  };
  CHECK(at("world_size") < at("step_time_s"));
  CHECK(at("step_time_s") < at("breakdown_s"));
  CHECK(at("breakdown_s") < at("memory"));
  CHECK(keys.back() == "warnings");
}

TEST_CASE("ways to fit are null where none were looked for, and values where there are some") {
  StepReport report = fixture::four_variants()[3].report;
  CHECK(Json::parse(to_json(report))["ways_to_fit"].is_null());
  WaysToFit& found = report.ways_to_fit.emplace();
  CHECK(Json::parse(to_json(report))["ways_to_fit"] == Json::array());
  WayToFit way;
  way.changes = {{"/parallelism/tp", "tensor parallel", "1", "2"},
                 {"/parallelism/pipeline/chunks_per_stage", "", "2", "null"}};
  way.sets = {"parallelism.tp=2", "parallelism.pipeline.chunks_per_stage=null"};
  way.peak = Bytes(1 << 30);
  way.step_time = 2 * report.simulated_step;
  found.ways = {way};
  const Json json = Json::parse(to_json(report))["ways_to_fit"][0];
  CHECK(json["changes"][0]["to"] == 2);
  CHECK(json["changes"][1]["to"].is_null());
  CHECK(json["set"][0] == "parallelism.tp=2");
  CHECK(json["saved_bytes"] == report.memory.peak.count() - (1 << 30));
  CHECK(json["step_time_change"] == 1.0);
}

TEST_CASE("a variant that does not fit has no step time and no rates, but all of its memory") {
  const Json json = Json::parse(to_json(reports()[3]));
  CHECK(json["status"] == "out_of_memory");
  CHECK(json["step_time_s"].is_null());
  CHECK(json["tokens_per_s"].is_null());
  CHECK(json["mfu"].is_null());
  CHECK(json["memory"]["fits"] == false);
  CHECK(json["memory"]["peak_bytes"] > json["memory"]["capacity_bytes"]);
  CHECK(!json["memory"]["owners"].empty());
  CHECK(json["simulated_step_s"].get<double>() > 0);
}

TEST_CASE("a step that never finishes says why") {
  StepReport report = reports()[0];
  report.deadlock = "rank 0 waits for rank 1";
  report.step_time.reset();
  const Json json = Json::parse(to_json(report));
  CHECK(json["status"] == "deadlock");
  CHECK(json["reason"] == "never finishes: rank 0 waits for rank 1");
}

TEST_CASE("images have no tokens") {
  StepReport report = reports()[0];
  report.is_language = false;
  const Json json = Json::parse(to_json(report));
  CHECK(json["tokens_per_s"].is_null());
  CHECK(json["sequence_length"].is_null());
  CHECK(json["samples_per_s"].get<double>() > 0);
}

TEST_CASE("a comparison holds each variant's summary in the order given") {
  const std::vector<StepReport> list = reports();
  const Json json = Json::parse(compare_json("four", list, 1));
  CHECK(json["baseline"] == "1F1B");
  REQUIRE(json["variants"].size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    Json one = Json::parse(to_json(list[i], baseline_of(list[1])));
    one.erase("trainyard");  // said once for the file
    const bool same = json["variants"][i] == one;
    CHECK(same);
  }
  CHECK(json["variants"][1]["speedup"] == 1.0);
  CHECK(json["variants"][3]["speedup"].is_null());
}

TEST_CASE("the speed-up is the baseline's time over the variant's") {
  StepReport slow, fast;
  slow.step_time = Duration(3'000'000'000'000);
  fast.step_time = Duration(2'000'000'000'000);
  CHECK(speedup(fast, baseline_of(slow)) == 1.5);
  CHECK(!speedup(StepReport{}, baseline_of(slow)));
  CHECK(!speedup(fast, baseline_of(StepReport{})));
}

TEST_CASE("variants with more to do in a step are compared by what they get done") {
  const auto report = [](int seconds, std::int64_t batch, std::int64_t length) {
    StepReport made;
    made.step_time = Duration(seconds * 1'000'000'000'000);
    made.global_batch = batch;
    made.sequence_length = length;
    made.is_language = length > 0;
    return made;
  };
  // Twice the time for four times the samples.
  CHECK(speedup(report(2, 64, 0), baseline_of(report(1, 16, 0))) == 2);
  StepReport dropped = report(2, 64, 0);
  dropped.counted = 0.5;
  CHECK(speedup(dropped, baseline_of(report(1, 16, 0))) == 1);
  // Of language models tokens count, beside another network samples.
  CHECK(speedup(report(2, 64, 512), baseline_of(report(1, 64, 128))) == 2);
  CHECK(speedup(report(2, 64, 512), baseline_of(report(1, 64, 0))) == 0.5);
  // One unit for all of a comparison, and the same for their order.
  const std::vector<StepReport> mixed = {report(1, 64, 128), report(2, 64, 512), report(1, 64, 0)};
  CHECK(speedup(mixed[1], baseline_of(mixed, 0)) == 0.5);
  CHECK(fastest_first(mixed) == std::vector<std::size_t>{0, 2, 1});
  const std::span<const StepReport> language(mixed.data(), 2);
  CHECK(speedup(mixed[1], baseline_of(language, 0)) == 2);
  StepReport none;
  const std::vector<StepReport> list = {none, report(1, 16, 0), report(2, 64, 0), report(1, 16, 0)};
  CHECK(fastest_first(list) == std::vector<std::size_t>{2, 1, 3, 0});
  // The longer sequence wins where all are language models.
  CHECK(fastest_first(std::vector{report(1, 64, 128), report(2, 64, 512)}).front() == 1);
  CHECK(fastest_first(std::vector{report(1, 64, 128), report(2, 64, 512), none}).front() == 1);
}

TEST_CASE("text that is not UTF-8 does not break the file") {
  StepReport report;
  for (const std::string& text : fixture::hostile_texts())
    report.warnings.push_back(text);
  const Json json = Json::parse(to_json(report));
  CHECK(json["warnings"].size() == fixture::hostile_texts().size());
  CHECK(json["warnings"][0] == fixture::hostile_texts()[0]);
}

TEST_CASE("the same report gives the same bytes") {
  CHECK(to_json(reports()[2]) == to_json(reports()[2]));
}

TEST_CASE("the spread over ranks weighs a class by its ranks") {
  StepReport report;
  report.simulated_step = Duration(10);
  const auto rank = [](int count, std::int64_t compute) {
    StepReport::RankBreakdown r;
    r.count = count;
    r.breakdown[0] = Duration(compute);
    return r;
  };
  report.ranks = {rank(1, 9), rank(3, 4), rank(1, 2)};
  const Json spread = Json::parse(to_json(report))["breakdown_over_ranks_s"]["compute"];
  CHECK(spread["min"] == 2e-12);
  CHECK(spread["median"] == 4e-12);
  CHECK(spread["max"] == 9e-12);
}
