#include "suite.h"

namespace trainyard::probe {

// In the order in which they run. One row, one line.
// clang-format off
const std::vector<Suite>& suites() {
  static const std::vector<Suite> table = {
      {"machine", "GPUs, clocks, power, links, driver, processor", 0.04, false, run_machine},
      {"launch", "what the host pays for kernels, graphs and events", 0.03, false, run_launch},
      {"gemm", "matrix products by cuBLASLt: fp32, tf32, fp16, bf16, fp8", 0.40, false, run_gemm},
      {"memory", "memory-bound kernels of training, by size", 0.20, false, run_memory},
      {"attention", "fused attention by cuDNN and a kernel of our own", 0.12, false, run_attention},
      {"convolution", "layers of ResNet-50, VGG-16, U-Net by cuDNN", 0.12, false, run_convolution},
      {"copy", "copies between host and device, and inside of each", 0.06, false, run_copy},
      {"p2p", "transfers between every two devices", 0.10, true, run_p2p},
      {"collective", "collectives by NCCL and by rings of our own", 0.15, false, run_collective},
      {"overlap", "compute beside communication, and what each loses", 0.08, false, run_overlap},
  };
  return table;
}
// clang-format on

}  // namespace trainyard::probe
