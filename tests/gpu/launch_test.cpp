#include "tests/gpu/suite_run.h"

using namespace trainyard::probe;

TEST_CASE("launching costs what launching can cost") {
  std::map<std::string, double> times;
  for (const test::Fields& line : test::run_suite(run_launch, 20))
    times[line.at("what")] = std::stod(line.at("time_us"));
  for (const char* what : {"kernel", "graph_node", "graph_launch", "event_record", "stream_wait",
                           "empty_kernel", "round_trip"}) {
    CAPTURE(what);
    REQUIRE(times.count(what) == 1);
    CHECK(times[what] > 0.02);
    CHECK(times[what] < 500);
  }
  CHECK(times["kernel"] < 50);
  CHECK(times["graph_node"] < 10);
  CHECK(times["round_trip"] > times["kernel"]);
  CHECK(times["round_trip"] > times["empty_kernel"]);
}
