// GEMM laws against measured kernels of language models. Built only where TRAINYARD_GROUNDTRUTH
// names a folder with gemm_fp16.csv (gpu,m,n,k,dtype,time_us).
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/cost/profile.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

struct Score {
  int rows = 0;
  double error = 0;  // mean of |predicted / measured - 1|
};

Score score(const std::string& gpu, const std::string& profile, const MachinePeaks& peaks) {
  const auto cost = fitted_compute_cost(
      read_profile(std::string(TRAINYARD_SOURCE_DIR) + "/configs/profiles/" + profile), peaks);
  std::ifstream file(std::string(TRAINYARD_GROUNDTRUTH) + "/gemm_fp16.csv");
  REQUIRE(file);
  Score result;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream row(line);
    std::string name, m, n, k, dtype, time;
    for (std::string* field : {&name, &m, &n, &k, &dtype, &time})
      std::getline(row, *field, ',');
    if (name != gpu) continue;
    const Gemm gemm{.m = std::stoll(m),
                    .n = std::stoll(n),
                    .k = std::stoll(k),
                    .batch = 1,
                    .dtype = Dtype::fp16};
    result.error += std::abs(cost->time(gemm).time.count() * 1e6 / std::stod(time) - 1);
    ++result.rows;
  }
  result.error /= result.rows;
  return result;
}

}  // namespace

TEST_CASE("GEMM laws keep their stated error on measured kernels") {
  const Score a100 = score("a100", "a100-sxm4-80gb.json",
                           {.fp32 = {},
                            .tf32 = {},
                            .fp16 = 312_TFLOPs,
                            .bf16 = 312_TFLOPs,
                            .fp8 = {},
                            .memory_bandwidth = 2039_GBps,
                            .l2 = {}});
  const Score h100 = score("h100", "h100-sxm5-80gb.json",
                           {.fp32 = {},
                            .tf32 = {},
                            .fp16 = 989_TFLOPs,
                            .bf16 = 989_TFLOPs,
                            .fp8 = {},
                            .memory_bandwidth = 3350_GBps,
                            .l2 = {}});
  MESSAGE("A100: " << a100.error << " of " << a100.rows << ", H100: " << h100.error << " of "
                   << h100.rows);
  CHECK(a100.error < 0.065);
  CHECK(h100.error < 0.095);
}
