// What tests on a device have in common.
#pragma once

#include <doctest/doctest.h>

#include "calibrate/probe/host/device.h"

namespace trainyard::probe::test {

// Thrown where the machine lacks what a test is about: the test is then skipped, not passed.
struct Skip {
  std::string why;
};

inline DeviceInfo the_device() {
  const DeviceInfo device = device_info(0);
  PROBE_CUDA(cudaSetDevice(0));
  return device;
}

inline void need_devices(int count) {
  if (device_count() < count) throw Skip{"needs " + std::to_string(count) + " devices"};
}

// The rate that the memory's clock and width allow, bytes per second; 0 if the driver does not say.
inline double memory_peak(const DeviceInfo& device) {
  return 2 * device.memory_clock_mhz * 1e6 * device.memory_bus_bits / 8;
}

}  // namespace trainyard::probe::test
