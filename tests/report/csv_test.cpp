// compare --csv.
#include "cli/report/csv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "sim/simulate/outlook/speedup.h"
#include "tests/report/fixture.h"

using namespace trainyard;
using fixture::reports;

namespace {

// Cells of a text without quotes.
std::vector<std::vector<std::string>> cells(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, '\n');) {
    REQUIRE(line.back() == '\r');
    line.pop_back();
    std::istringstream row(line + ",");
    rows.emplace_back();
    for (std::string cell; std::getline(row, cell, ',');)
      rows.back().push_back(cell);
  }
  return rows;
}

}  // namespace

TEST_CASE("a table of variants has as many cells in each row, the fastest first") {
  std::vector<StepReport> list = reports();
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i].label = std::string(1, static_cast<char>('a' + i));
  const auto rows = cells(report::compare_csv(list, 0));
  REQUIRE(rows.size() == list.size() + 1);
  for (const auto& row : rows)
    CHECK(row.size() == rows[0].size());
  CHECK(rows[0][3] == "step_time_s");
  double previous = 0;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    if (rows[r][3].empty()) {
      CHECK(r + 1 == rows.size());
      CHECK(rows[r][2] == "out_of_memory");
      continue;
    }
    CHECK(std::stod(rows[r][3]) >= previous);
    previous = std::stod(rows[r][3]);
  }
  CHECK(simulate::fastest_first(list).size() == list.size());
}

TEST_CASE("texts of a scenario stay in their cell and are no formula") {
  std::vector<StepReport> list = reports();
  list.resize(1);
  list[0].name = "=1+1";
  list[0].label = "one, \"two\"\nthree";
  const std::string text = report::compare_csv(list, 0);
  CHECK(text.find("\r\n'=1+1,\"one, \"\"two\"\"") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}
