// The suites of one device's kernels: what they write must be possible.
#include <algorithm>
#include <set>
#include <tuple>

#include "calibrate/probe/suites/attention_shapes.h"
#include "tests/gpu/suite_run.h"

using namespace trainyard::probe;

namespace {

// Of each suite: enough for its first rounds, which have every kind of kernel.
constexpr double kSeconds = 20;

double number(const test::Fields& line, const char* key) {
  return std::stod(line.at(key));
}

// No chip to date does more than 8192 operations per clock and multiprocessor on 16-bit operands.
double most_flops(const DeviceInfo& device) {
  const double clock_mhz = device.clock_mhz > 0 ? device.clock_mhz : 3000;
  return 8192.0 * device.multiprocessors * clock_mhz * double{std::mega::num};
}

}  // namespace

TEST_CASE("memory-bound kernels stay below the memory's rate, and more bytes take longer") {
  const DeviceInfo device = test::the_device();
  const auto lines = test::run_suite(run_memory, kSeconds);
  REQUIRE(lines.size() > 50);
  const double peak = test::memory_peak(device);
  using Curve = std::tuple<std::string, std::string, std::string>;
  std::map<Curve, std::map<double, double>> curves;  // time by bytes
  double fastest_copy = 0;
  for (const auto& line : lines) {
    const double bytes = number(line, "read_bytes") + number(line, "written_bytes");
    const double rate = bytes / (number(line, "time_us") * 1e-6);
    CAPTURE(line.at("op"));
    CAPTURE(line.at("variant"));
    CAPTURE(bytes);
    // What is much larger than the L2 cache must come from memory.
    const bool warm = line.at("variant").find("-warm") != std::string::npos;
    if (!warm && peak > 0 && bytes > 8 * static_cast<double>(device.l2_bytes)) CHECK(rate < peak);
    if (line.at("variant") == "copy") fastest_copy = std::max(fastest_copy, rate);
    curves[{line.at("op"), line.at("variant"), line.at("dtype")}][bytes] = number(line, "time_us");
  }
  if (peak > 0) CHECK(fastest_copy > 0.6 * peak);
  for (const auto& [name, curve] : curves) {
    CAPTURE(std::get<0>(name));
    CAPTURE(std::get<1>(name));
    // Between sizes that differ by 4 or more and do not fit the caches.
    for (const auto& [bytes, time] : curve)
      for (const auto& [more, longer] : curve)
        if (bytes > 2 * static_cast<double>(device.l2_bytes) && more >= 4 * bytes)
          CHECK(longer > time);
  }
}

TEST_CASE("attention does no more than the tensor cores can, and longer sequences take longer") {
  const DeviceInfo device = test::the_device();
  if (!device.at_least(8, 0)) throw test::Skip{"needs compute capability 8.0"};
  const auto lines = test::run_suite(run_attention, kSeconds);
  REQUIRE(lines.size() >= 4);
  std::set<std::string> implementations;
  for (const auto& line : lines) {
    const AttentionProblem problem{
        std::stoi(line.at("batch")),     std::stoi(line.at("heads")),
        std::stoi(line.at("kv_heads")),  std::stoi(line.at("query_length")),
        std::stoi(line.at("head_size")), line.at("causal") == "true"};
    const bool backward = line.at("backward") == "true";
    const double rate = problem.flops(backward) / (number(line, "time_us") * 1e-6);
    CAPTURE(line.at("implementation"));
    CAPTURE(problem.length);
    CHECK(rate < most_flops(device));
    if (problem.length >= 2048) CHECK(rate > most_flops(device) / 500);
    implementations.insert(line.at("implementation"));
  }
  CHECK(implementations.count("tiled") == 1);
}

TEST_CASE("convolutions do no more than the tensor cores can") {
  const DeviceInfo device = test::the_device();
  const auto lines = test::run_suite(run_convolution, kSeconds);
  if (lines.empty()) throw test::Skip{"built without cuDNN, or cuDNN refused"};
  for (const auto& line : lines) {
    const double flops = 2 * number(line, "batch") * number(line, "in_channels") *
                         number(line, "out_channels") * number(line, "kernel_height") *
                         number(line, "kernel_width") * number(line, "out_height") *
                         number(line, "out_width");
    CAPTURE(line.at("pass"));
    CAPTURE(line.at("network"));
    // Winograd's algorithm does 4 products where a 3 x 3 window has 9.
    CHECK(flops / (number(line, "time_us") * 1e-6) < 2.25 * most_flops(device));
  }
}
