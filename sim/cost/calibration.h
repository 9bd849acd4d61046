// What a fitted profile says of its own making, as it is shown in the report.
#pragma once

#include <string>
#include <vector>

namespace trainyard::cost {

// Error of a fit on samples that it did not see, as shares: 0.061 is 6.1 %.
struct HeldOutError {
  std::string what;                            // "gemm bf16"
  std::string size;                            // "all", "flops >= 1e9"
  int fitted = 0, held_out = 0, rejected = 0;  // samples
  double mape = 0, median = 0, worst = 0;
  friend bool operator==(const HeldOutError&, const HeldOutError&) = default;
};

// Of a profile that `trainyard fit` made: from what, and how well it predicts.
struct Calibration {
  std::string program;  // and version
  std::string machine;  // "8x NVIDIA H200"
  std::string date, driver, cuda;
  int samples = 0;
  std::vector<HeldOutError> errors;
  std::vector<std::string> rejected;  // what was not fitted, and why
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

}  // namespace trainyard::cost
