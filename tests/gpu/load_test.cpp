// Blocks that hold multiprocessors and stream memory, and what kernels lose beside them.
#include "calibrate/probe/ring/load.h"

#include <chrono>
#include <thread>

#include "tests/gpu/suite_run.h"

using namespace trainyard::probe;

namespace {

double stream_us(Load& load, const Stream& stream, int channels) {
  REQUIRE(load.start(LoadKind::stream, channels));
  Load::delay(stream, 500);
  load.mark(stream, 0);
  Load::delay(stream, 3000);
  load.mark(stream, 1);
  stream.wait();
  REQUIRE(load.stop());
  return load.piece_us();
}

}  // namespace

TEST_CASE("a load runs until it is stopped, again and again") {
  Load load(test::the_device(), std::size_t{256} << 20);
  for (const LoadKind kind : {LoadKind::hold, LoadKind::stream, LoadKind::hold})
    for (const int channels : {1, load.most_channels()}) {
      REQUIRE(load.start(kind, channels));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK(load.stop());
    }
}

TEST_CASE("blocks that stream share the memory, and no more than there is") {
  const DeviceInfo device = test::the_device();
  Load load(device, std::size_t{512} << 20);
  const Stream stream;
  const double one = stream_us(load, stream, 1);
  const double many = stream_us(load, stream, load.most_channels());
  CHECK(one > 0);
  CHECK(many >= one * 0.95);  // a block does not get faster in company
  const double rate = static_cast<double>(load.bytes_per_piece()) / many * 1e6;
  CHECK(rate > 1e10);
  if (test::memory_peak(device) > 0) CHECK(rate < test::memory_peak(device));
}

TEST_CASE("a load that nobody stops ends by itself, and says so") {
  Load load(test::the_device(), std::size_t{64} << 20);
  for (const LoadKind kind : {LoadKind::hold, LoadKind::stream}) {
    REQUIRE(load.start(kind, 2));
    std::this_thread::sleep_for(std::chrono::milliseconds(5500));
    CHECK_FALSE(load.stop());
  }
}

TEST_CASE("kernels are slower beside a load, and slower still beside a larger one") {
  std::map<std::string, std::map<int, double>> slowdowns;  // by victim and load, then channels
  for (const test::Fields& line : test::run_suite(run_overlap, 60)) {
    const double slowdown = std::stod(line.at("time_us")) / std::stod(line.at("alone_us"));
    const bool is_gemm = line.at("victim") == "gemm";
    const std::string what =
        line.at("load") + " " + (is_gemm ? "gemm " + line.at("m") : line.at("variant"));
    CAPTURE(what);
    CHECK(slowdown > 0.95);
    CHECK(slowdown < 10);
    slowdowns[what][std::stoi(line.at("channels"))] = slowdown;
    if (line.at("load") == "stream")
      CHECK(std::stod(line.at("load_us")) > 0.9 * std::stod(line.at("load_alone_us")));
    else
      CHECK(line.count("load_us") == 0);
  }
  CHECK(slowdowns.size() == 8);  // two products, copy and add; two loads
  for (const auto& entry : slowdowns) {
    const std::string what = entry.first;
    const std::map<int, double>& by_channels = entry.second;
    CAPTURE(what);
    REQUIRE(by_channels.size() >= 1);
    CHECK(by_channels.rbegin()->second > by_channels.begin()->second - 0.03);
  }
  // 24 of at most 200 multiprocessors are gone.
  CHECK(slowdowns["hold gemm 8192"].rbegin()->second > 1.05);
}
