// The ring kernels against the definition of each collective: virtual ranks on one device, and real
// ones where there are more.
#include "calibrate/probe/ring/ring.h"

#include <algorithm>

#include "tests/calibrate/collective_reference.h"
#include "tests/gpu/suite_run.h"

using namespace trainyard::probe;

namespace {

constexpr std::int64_t kMost = 1 << 20;

// Whole numbers, so that sums are exact in any order.
float value_of(int rank, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 131 + i * 7) % 997);
}

void check_operation(RingCommunicator& ring, Lanes& lanes, Collective kind, std::int64_t elements,
                     int channels) {
  CAPTURE(name(kind));
  CAPTURE(ring.ranks());
  CAPTURE(elements);
  CAPTURE(channels);
  const auto count = static_cast<std::size_t>(elements);
  test::Buffers<float> input(static_cast<std::size_t>(ring.ranks()));
  const std::vector<float> untouched(count, float{test::kUntouched});
  for (int rank = 0; rank < ring.ranks(); ++rank) {
    auto& buffer = input[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < count; ++i)
      buffer.push_back(value_of(rank, i));
    PROBE_CUDA(cudaMemcpy(ring.input(rank), buffer.data(), count * 4, cudaMemcpyHostToDevice));
    PROBE_CUDA(cudaMemcpy(ring.output(rank), untouched.data(), count * 4, cudaMemcpyHostToDevice));
  }
  PROBE_CUDA(cudaDeviceSynchronize());
  lanes.interval(
      [&](std::size_t lane) { ring.enqueue(lane, lanes.stream(lane), kind, elements, channels); });
  REQUIRE(ring.healthy());
  const RingShape shape{kind, ring.ranks(), channels, elements, kRingSlotElements, 4};
  for (int rank = 0; rank < ring.ranks(); ++rank) {
    std::vector<float> output(count);
    PROBE_CUDA(cudaMemcpy(output.data(), ring.output(rank), count * 4, cudaMemcpyDeviceToHost));
    REQUIRE((output == test::expected_output(shape, input, rank)));
  }
}

// One communicator for everything: flags must go on from operation to operation.
void check_group(const std::vector<int>& devices) {
  REQUIRE(RingCommunicator::possible(devices));
  RingCommunicator ring(devices, kMost);
  Lanes lanes(ring.lane_devices());
  for (const std::int64_t elements :
       {std::int64_t{1}, std::int64_t{7}, std::int64_t{1000}, std::int64_t{100'003}, kMost})
    for (int k = 0; k < kCollectives; ++k)
      for (const int channels : {1, 3, ring.most_channels()})
        check_operation(ring, lanes, static_cast<Collective>(k), elements, channels);
}

std::vector<int> all_devices() {
  std::vector<int> devices;
  for (int i = 0; i < std::min(device_count(), kRingMostRanks); ++i)
    devices.push_back(i);
  return devices;
}

}  // namespace

TEST_CASE("ring kernels do what collectives are, with virtual ranks") {
  test::the_device();
  for (const std::size_t ranks : {2, 3, 8})
    check_group(std::vector<int>(ranks, 0));
}

TEST_CASE("ring kernels do what collectives are, on several devices") {
  test::need_devices(2);
  if (!RingCommunicator::possible(all_devices()))
    throw test::Skip{"the devices do not reach each other's memory"};
  check_group(all_devices());
}

TEST_CASE("a rank whose partner never comes gives up") {
  test::need_devices(2);
  if (!RingCommunicator::possible({0, 1}))
    throw test::Skip{"the devices do not reach each other's memory"};
  RingCommunicator ring({0, 1}, kMost);
  ring.set_time_limit(0.2);
  Lanes lanes({0});
  lanes.interval([&](std::size_t) {
    for (int i = 0; i < 3; ++i)
      ring.enqueue(0, lanes.stream(0), Collective::all_reduce, kMost, 2);
  });
  CHECK_FALSE(ring.healthy());
}

TEST_CASE("ring kernels take longer for more, and not less than memory needs") {
  const DeviceInfo device = test::the_device();
  RingCommunicator ring(std::vector<int>(4, 0), 16 * kMost);
  Lanes lanes(ring.lane_devices());
  double before = 0;
  for (std::int64_t elements = 1 << 18; elements <= 16 * kMost; elements *= 4) {
    const int channels = ring.channels_for(Collective::all_reduce, elements);
    const Timing timing = measure_slowest_lane(lanes, [&](std::size_t lane, int) {
      ring.enqueue(lane, lanes.stream(lane), Collective::all_reduce, elements, channels);
    });
    CAPTURE(elements);
    CHECK(timing.median_us > before);
    before = timing.median_us;
  }
  CHECK(ring.healthy());
  // Four inputs of 64 MiB are read and four outputs written; caches hold a part of them.
  const double least_bytes = 8.0 * 16 * kMost * 4 - 2.0 * static_cast<double>(device.l2_bytes);
  if (test::memory_peak(device) > 0) CHECK(before > least_bytes / test::memory_peak(device) * 1e6);
}

TEST_CASE("the collective suite measures virtual ranks on one device, and real ones on several") {
  const auto lines = test::run_suite(run_collective, 20);
  REQUIRE(lines.size() > 10);
  for (const test::Fields& line : lines) {
    CHECK(line.at("kind") == "collective");
    CHECK(line.at("backend") == "loopback");
    CHECK(std::stod(line.at("time_us")) > 1);
    CHECK(std::stod(line.at("time_us")) < 1e5);
  }
  test::need_devices(2);
  std::vector<DeviceInfo> devices;
  for (const int device : all_devices())
    devices.push_back(device_info(device));
  // No wire between devices is faster than their memory.
  for (const test::Fields& line : test::run_suite(run_collective, 30, devices)) {
    const double rate = std::stod(line.at("bytes")) / std::stod(line.at("time_us")) * 1e6;
    CHECK(line.at("backend") != "loopback");
    if (test::memory_peak(devices[0]) > 0) CHECK(rate < test::memory_peak(devices[0]));
  }
}
