#include "calibrate/probe/host/host.h"
#include "tests/gpu/suite_run.h"

using namespace trainyard::probe;

TEST_CASE("copies are not faster than the links they cross, and large ones reach most of it") {
  const DeviceInfo device = test::the_device();
  const std::optional<Pcie> pcie = pcie_of(device.pci);
  int host_copies = 0;
  for (const test::Fields& line : test::run_suite(run_copy, 20)) {
    const double bytes = std::stod(line.at("bytes"));
    const double rate = bytes / (std::stod(line.at("time_us")) * 1e-6);
    const std::string direction = line.at("direction");
    CAPTURE(direction);
    CAPTURE(bytes);
    CHECK(rate > 1e6);
    CHECK(rate < 10e12);
    if (direction == "d2d" && test::memory_peak(device) > 0 &&
        bytes > 2 * static_cast<double>(device.l2_bytes))
      CHECK(2 * rate < test::memory_peak(device));
    if (direction != "h2d" && direction != "d2h") continue;
    ++host_copies;
    // A GPU beside an Arm processor of its vendor has NVLink to it; sysfs then says less than is
    // there.
    if (!pcie || pcie->generation < 3) continue;
    double lane = 0.985e9;  // of PCIe 3.0, after encoding
    for (int i = 3; i < pcie->generation; ++i)
      lane *= 2;
    if (cpu_name().empty()) continue;
    CHECK(rate < lane * pcie->width);
    if (line.at("pinned") == "true" && bytes >= 64e6) CHECK(rate > 0.3 * lane * pcie->width);
  }
  CHECK(host_copies >= 4);
}
