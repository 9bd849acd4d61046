#include "calibrate/probe/host/timing.h"

#include <vector>

#include "tests/gpu/device.h"
#include "tests/support/about.h"

using namespace trainyard::probe;
using trainyard::about;

TEST_CASE("twice the bytes take twice the time, and not less than the memory allows") {
  const DeviceInfo device = test::the_device();
  const Stream stream;
  const std::size_t bytes = std::size_t{256} << 20;
  const DeviceBuffer from(2 * bytes), to(2 * bytes);
  const auto time_of = [&](std::size_t size) {
    return measure(stream,
                   [&](long long) {
                     PROBE_CUDA(cudaMemcpyAsync(to.data(), from.data(), size,
                                                cudaMemcpyDeviceToDevice, stream));
                   })
        .median_us;
  };
  const double one = time_of(bytes), two = time_of(2 * bytes);
  CHECK(two / one == about(2).within(0.15));
  if (test::memory_peak(device) > 0)
    CHECK(one * 1e-6 >= 2.0 * static_cast<double>(bytes) / test::memory_peak(device));
}

TEST_CASE("a call inside a graph takes no longer than the same call from the host") {
  test::the_device();
  const Stream stream;
  const DeviceBuffer memory(1 << 16);
  const Work work = [&](long long) {
    PROBE_CUDA(cudaMemsetAsync(memory.data(), 1, memory.bytes(), stream));
  };
  TimingOptions by_host;
  by_host.graph = false;
  const double graph = measure(stream, work).median_us;
  const double host = measure(stream, work, by_host).median_us;
  CHECK(graph > 0.2);
  CHECK(graph < 1.5 * host);
}

TEST_CASE("random operands are neither zero nor one or more, and differ") {
  test::the_device();
  const Stream stream;
  const std::size_t count = 1 << 20;
  const DeviceBuffer memory(count * sizeof(float));
  fill_random(Type::fp32, memory.data(), count, 7, stream);
  std::vector<float> values(count);
  PROBE_CUDA(cudaMemcpyAsync(values.data(), memory.data(), memory.bytes(), cudaMemcpyDeviceToHost,
                             stream));
  stream.wait();
  double sum = 0;
  std::size_t outside = 0, repeated = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float size = values[i] < 0 ? -values[i] : values[i];
    outside += size < 0.0156f || size >= 1.0f;
    repeated += i > 0 && values[i] == values[i - 1];
    sum += values[i];
  }
  CHECK(outside == 0);
  CHECK(repeated < 10);
  CHECK(sum / static_cast<double>(count) == about(0).within(0.01).give_or_take(0.01));
}
