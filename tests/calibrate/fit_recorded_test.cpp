// Measurements of real machines, retyped from public sources (recorded/README.md).
#include <doctest/doctest.h>

#include "tests/calibrate/synthetic.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

FitResult fit_recorded(const std::string& name, const FitGpu& gpu) {
  FitOptions options;
  options.find_gpu = [&gpu](const std::string&) { return gpu; };
  return fit_samples({std::string(TRAINYARD_SOURCE_DIR) + "/tests/calibrate/recorded/" + name},
                     options);
}

FitGpu a100() {
  FitGpu gpu;
  gpu.name = "a100-sxm4-80gb";
  gpu.peaks.fp16 = gpu.peaks.bf16 = FlopsPerSecond(312e12);
  gpu.peaks.memory_bandwidth = BytesPerSecond(2039e9);
  gpu.peaks.l2 = Bytes(40 << 20);
  gpu.multiprocessors = 108;
  return gpu;
}

}  // namespace

TEST_CASE("100 recorded GEMMs of an A100 give the constants that 62,088 shapes gave") {
  const FitResult result = fit_recorded("a100.jsonl", a100());
  REQUIRE(result.profile.gemm.size() == 1);
  const GemmLaw& law = result.profile.gemm.front();
  // docs/cost-gemm.md: 5.9 us, .739, .827, 1.48. A hundredth of the shapes leaves the exponent and
  // the memory efficiency, which answer for one another, less certain than the other two.
  CHECK(law.fixed.count() == about(5.9e-6).within(0.1));
  CHECK(law.compute_efficiency == about(0.739).within(0.04));
  CHECK(law.memory_efficiency == about(0.827).within(0.08));
  CHECK(law.exponent == about(1.48).within(0.2));
  const HeldOutError error = error_of(result, "gemm fp16");
  CHECK(error.held_out >= 25);
  CHECK(error.mape < 0.08);
  CHECK(error.mape > 0.02);  // kernels of a library never follow a law of four constants so well
}

TEST_CASE("Recorded all-reduces of eight A100 give the law of docs/cost-messages.md") {
  const FitResult result = fit_recorded("a100.jsonl", a100());
  REQUIRE(result.profile.collectives.size() == 1);
  const CollectiveLaw& law = result.profile.collectives.front();
  CHECK(law.ranks == 8);
  CHECK(law.bandwidth.count() == about(143e9).within(0.1));
  CHECK(error_of(result, "all-reduce on 8 ranks, 1 server").mape < 0.08);
}

TEST_CASE("The one disturbed size of a recorded log is rejected and listed") {
  FitGpu h100 = a100();
  h100.name = "h100-sxm5-80gb";
  const FitResult result = fit_recorded("h100_all_reduce.jsonl", h100);
  REQUIRE(result.profile.collectives.size() == 1);
  // 68 us at 32 bytes between 13 and 15 us at 16 and 64 bytes.
  REQUIRE(result.profile.calibration->rejected.size() == 1);
  CHECK(result.profile.calibration->rejected.front().find("32 bytes: measured 68.14 us") !=
        std::string::npos);
  // 480 GB/s of bus bandwidth at 16 GiB is 274 GB/s of the buffer.
  CHECK(result.profile.collectives.front().bandwidth.count() == about(274e9).within(0.08));
}
