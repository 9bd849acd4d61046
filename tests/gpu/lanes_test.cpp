// Streams that are timed together, and transfers between devices.
#include "calibrate/probe/ring/lanes.h"

#include <chrono>
#include <thread>

#include "calibrate/probe/ring/load.h"
#include "tests/gpu/suite_run.h"

using namespace trainyard::probe;

TEST_CASE("lanes run at the same time, and the host's enqueuing is not timed") {
  test::the_device();
  Lanes lanes({0, 0});
  const auto enqueue = [&](std::size_t lane) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Load::delay(lanes.stream(lane), 1000);
  };
  lanes.interval(enqueue);
  for (const double time : lanes.interval(enqueue)) {
    CHECK(time > 990);
    CHECK(time < 2000);
  }
}

TEST_CASE("a lane's time is that of one call, not of the batch") {
  test::the_device();
  Lanes lanes({0});
  const std::vector<Timing> timings =
      measure_lanes(lanes, [&](std::size_t lane, int) { Load::delay(lanes.stream(lane), 100); });
  REQUIRE(timings.size() == 1);
  CHECK(timings[0].median_us > 99);
  CHECK(timings[0].median_us < 150);
  CHECK(timings[0].repeats >= 3);
}

TEST_CASE("a failure while enqueuing lets the other lanes go") {
  test::the_device();
  Lanes lanes({0, 0});
  CHECK_THROWS(lanes.interval([](std::size_t lane) {
    if (lane == 1) throw std::runtime_error("no");
  }));
  for (const double time :
       lanes.interval([&](std::size_t lane) { Load::delay(lanes.stream(lane), 100); }))
    CHECK(time < 2000);
}

TEST_CASE("one device has no transfers between devices") {
  CHECK(test::run_suite(run_p2p, 5).empty());
}

TEST_CASE("every pair of devices is measured both ways") {
  test::need_devices(2);
  const std::vector<DeviceInfo> devices = {device_info(0), device_info(1)};
  int alone[2] = {0, 0};
  double last = 0;
  for (const test::Fields& line : test::run_suite(run_p2p, 30, devices)) {
    const double time = std::stod(line.at("time_us"));
    const double rate = std::stod(line.at("bytes")) / time * 1e6;
    CHECK(line.at("from") != line.at("to"));
    CHECK(time > 0.3);
    if (test::memory_peak(devices[0]) > 0) CHECK(rate < test::memory_peak(devices[0]));
    if (line.at("mode") != "alone") continue;
    ++alone[std::stoi(line.at("from"))];
    last = rate;
  }
  CHECK(alone[0] > 3);
  CHECK(alone[0] == alone[1]);
  CHECK(last > 1e9);
}
