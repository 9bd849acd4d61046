#include "cli/report/text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "cli/report/csv.h"
#include "fixture.h"
#include "sim/base/text.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using fixture::reports;

namespace {

void check_width(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto columns =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    CAPTURE(line);
    CHECK(columns <= 80);
  }
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a summary and a comparison fit 80 columns") {
  const std::vector<StepReport> list = reports();
  for (const StepReport& report : list)
    check_width(to_text(report));
  check_width(compare_text("four", list, 0));
  StepReport wide = list[0];
  wide.label = std::string(200, 'w');
  wide.step_time = Duration(123'456'789'012'345);
  check_width(compare_text("wide", std::vector<StepReport>{wide, list[3]}, 0));
}

TEST_CASE("without leave there are no escape sequences, and in ASCII mode no other bytes") {
  const std::string text =
      to_text(reports()[1], {false, true}) + compare_text("four", reports(), 0, {false, true});
  CHECK(std::all_of(text.begin(), text.end(),
                    [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7F); }));
  CHECK(!has(to_text(reports()[1]), "\x1b"));
  CHECK(has(to_text(reports()[1], {true, false}), "\x1b["));
}

TEST_CASE("names cannot drive the terminal") {
  for (const ReportVariant& variant : fixture::hostile_variants()) {
    StepReport report = variant.report;
    for (const std::string& hostile : fixture::hostile_texts()) {
      report.name = report.label = report.description = report.gpu = hostile;
      report.deadlock = hostile;
      report.step_time.reset();
      const std::string text =
          to_text(report) + compare_text(hostile, std::vector<StepReport>{report}, 0);
      CHECK(!has(text, "\x1b"));
      CHECK(!has(text, "\x07"));
      CHECK(!has(text, "\u202e"));
    }
  }
}

// The order of fourteen lines, read from the end: what a reader takes away stands where the eye is.
TEST_CASE("a result ends with its verdict and with what costs most") {
  const StepReport report = reports()[1];
  const std::string text = to_text(report);
  const std::size_t verdict = text.find("\nFits with "), most = text.find("\nCosts most: ");
  REQUIRE(verdict != std::string::npos);
  CHECK(most > verdict);
  CHECK(most > text.find("Basis: "));
  CHECK(has(text, "tokens take"));
  const std::string none = to_text(reports()[3]);
  CHECK(none.rfind("\nDoes not fit: ") > none.find("Basis: "));
}

TEST_CASE("less to spare than predicted peaks are off by is said") {
  StepReport report = reports()[1];
  REQUIRE(report.memory.fits);
  report.memory.peak = Bytes(report.memory.capacity.count() / 100 * 90);
  CHECK(!has(to_text(report), "less than predicted peaks are off by"));
  report.memory.peak = Bytes(report.memory.capacity.count() / 100 * 97);
  CHECK(has(to_text(report), "to spare, less than predicted peaks are off by: a step takes"));
}

TEST_CASE("what is tight is said where people look") {
  StepReport report = reports()[1];
  CHECK(!has(to_text(report), "tight"));
  report.memory.is_tight = true;
  report.memory.wanted = report.memory.capacity + Bytes(std::int64_t{5} << 30);
  const std::string text = to_text(report);
  const std::string wanted = trainyard::to_text(report.memory.wanted);
  CHECK(has(text, "tight, " + wanted + " wanted"));
  CHECK(has(text, "Tight, it would hold " + wanted));
  CHECK(has(text, "memory is tight: rank"));
  const std::string two = compare_text("two", std::vector{report, reports()[2]}, 0);
  CHECK(has(two, trainyard::to_text(report.memory.peak) + " ~"));
  CHECK(has(two, "~:"));
  const std::string csv = compare_csv(std::vector{report, reports()[2]}, 0);
  CHECK(has(csv, ",true,"));
  CHECK(has(csv, ",false,"));
}

TEST_CASE("a comparison marks the fastest, stands it first and ends with it") {
  const std::vector<StepReport> list = reports();
  std::size_t best = 0;
  for (std::size_t i = 1; i < list.size(); ++i)
    if (list[i].step_time && *list[i].step_time < *list[best].step_time) best = i;
  const std::string text = compare_text("four", list, 0);
  const std::size_t first = text.find("* " + list[best].label);
  REQUIRE(first != std::string::npos);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (i != best) CHECK(text.find("  " + list[i].label) > first);
  CHECK(has(text, "* " + list[best].label + " is the fastest"));
  CHECK(text.rfind("Costs it most: ") > text.rfind("is the fastest"));
  CHECK(has(text, "GPU-hours"));
}

TEST_CASE("a comparison says what its columns are and whose basis it tells") {
  std::vector<StepReport> list = reports();
  const std::string text = compare_text("four", list, 0);
  const std::string p2p =
      "idle: share of the compute streams' time; p2p: what stages send each other.\n";
  CHECK(has(text, p2p));
  CHECK(has(text, "Basis of " + list[0].label.substr(0, 20)));
  for (StepReport& report : list)
    report.pipeline = 1;
  CHECK(has(compare_text("four", list, 0), "idle: share of the compute streams' time.\n"));
}

TEST_CASE("the convention of PaLM is said without a share above one") {
  StepReport report = reports()[1];
  CHECK(has(to_text(report), "as PaLM and Megatron-LM count: "));
  report.full_square_mfu = 1.25;
  const std::string text = to_text(report);
  const std::size_t at = text.find("as PaLM and Megatron-LM count: ");
  CHECK(text.substr(at, text.find('\n', at) - at).find('%') == std::string::npos);
  report.full_square_flops = report.model_flops;
  CHECK(!has(to_text(report), "as PaLM"));
}

TEST_CASE("a variant that does not fit says so with its peak and its capacity") {
  const std::string one = to_text(reports()[3]);
  CHECK(has(one, "does not fit"));
  CHECK(has(one, "54.2 GiB of 40.0 GiB"));
  const std::string all = compare_text("four", reports(), 0);
  CHECK(has(all, "OOM"));
  CHECK(has(all, "54.2 GiB !"));
  CHECK(has(all, "GPipe, micro-batch of 2: does not fit: 54.2 GiB of 40.0 GiB on rank 0"));
}

TEST_CASE("ways to fit are said with what they save, what they cost and what to paste") {
  StepReport report = reports()[3];
  const std::string nothing = to_text(report);
  CHECK(!has(nothing, "ways to fit"));
  WaysToFit& found = report.ways_to_fit.emplace();
  found.simulated = 17;
  const Bytes gib(std::int64_t{1} << 30);
  WayToFit way;
  way.changes = {{"/parallelism/tp", "tensor parallel", "1", "2"},
                 {"/parallelism/dp", "", "4", "2"},
                 {"/training/recompute", "recomputation", "\"none\"", "\"full\""},
                 {"/parallelism/data_parallel/kind", "data parallelism", "\"allreduce\"",
                  "\"distributed_optimizer\""}};
  way.sets = {"parallelism.tp=2", "parallelism.dp=2", "training.recompute=full"};
  way.peak = Bytes(30 * gib.count());
  way.step_time = report.simulated_step + report.simulated_step / 4;
  found.ways = {way};
  const std::string text = to_text(report);
  CHECK(has(text, "Cheapest ways to fit, of 17 simulated"));
  CHECK(has(text, "1. tensor parallel 1 -> 2, recomputation none -> full"));
  CHECK(has(text, "saves 24.2 GiB: 30.0 GiB of 40.0 GiB"));
  CHECK(has(text, "(+25.0 %)"));
  CHECK(has(text, "--set parallelism.tp=2 --set parallelism.dp=2 --set training.recompute=full\n"));
  check_width(text);
  const std::string all = compare_text("one", std::vector<StepReport>{report}, 0);
  CHECK(has(all, "fits with tensor parallel 1 -> 2"));
  check_width(all);

  found.ways.clear();
  found.closest = {way};
  found.closest[0].peak = Bytes(44 * gib.count());
  const std::string none = to_text(report);
  CHECK(has(none, "Nothing that was tried fits (17 changes simulated)."));
  CHECK(has(none, "44.0 GiB of 40.0 GiB, 4.00 GiB too much"));
  check_width(none);
  found.untried = "Not tried: the optimizer on the host.";
  CHECK(has(to_text(report), "\nNot tried: the optimizer on the host.\n"));
  CHECK(has(compare_text("one", std::vector<StepReport>{report}, 0), "Not tried: the optimizer"));
}

TEST_CASE("the baseline has speed-up 1, and what does not run stands last") {
  std::vector<StepReport> list = reports();
  const std::vector<std::string> labels = {"all", "GPipe", "1F1B", "too large"};
  REQUIRE(list.size() == labels.size());
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i].label = labels[i];
  const std::string text = compare_text("four", list, 0);
  const std::size_t last = text.find("too large ");
  for (const char* label : {"all ", "GPipe ", "1F1B "})
    CHECK(text.find(label) < last);
  CHECK(has(text, "1.00x"));
}

// Cut labels could be the same.
TEST_CASE("names stand where labels do not fit") {
  std::vector<StepReport> list = reports();
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].name = "variant-" + std::to_string(i);
    list[i].label = "A long label of which only the end, " + std::to_string(i) + ", is its own";
  }
  const std::string text = compare_text("four", list, 0);
  for (std::size_t i = 0; i < list.size(); ++i)
    CHECK(has(text, "variant-" + std::to_string(i) + " "));
}

TEST_CASE("uncalibrated numbers are called so") {
  StepReport report = reports()[0];
  report.basis = {{Basis::analytic, 1.0}};
  CHECK(has(to_text(report), "uncalibrated"));
  CHECK(
      has(compare_text("mixed", std::vector<StepReport>{reports()[1], report}, 0), "uncalibrated"));
}

TEST_CASE("a comparison says the largest share that is extrapolated, or nothing") {
  std::vector<StepReport> list(2);
  list[0].basis = {{Basis::interpolated, 1.0}};
  list[1].basis = {{Basis::interpolated, 1.0}};
  CHECK(compare_text("two", list, 0).find("Extrapolated") == std::string::npos);
  list[0].basis = {{Basis::interpolated, 0.9}, {Basis::extrapolated, 0.1}};
  list[1].basis = {{Basis::analytic, 0.7}, {Basis::extrapolated, 0.3}};
  CHECK(compare_text("two", list, 0).find("Extrapolated: up to 30.0 % of") != std::string::npos);
}

TEST_CASE("shares of the breakdown add up to 100 % but for rounding") {
  const std::string text = to_text(reports()[2]);
  double total = 0;
  std::istringstream lines(text.substr(text.find("Where the step")));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.empty()) {
    const std::size_t end = line.find(" %");
    REQUIRE(end != std::string::npos);
    total += std::stod(line.substr(line.rfind(' ', end - 1)));
  }
  CHECK(total == about(100).within(0.004));
}
