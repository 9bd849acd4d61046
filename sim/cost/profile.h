// A profile: the constants of one machine's cost models, with their provenance. Read from
// configs/profiles/*.json; no number of it is ever in code.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/kernel.h"
#include "sim/cost/cost.h"

namespace trainyard {

// Where a group of constants comes from, shown in the report.
struct Provenance {
  std::string source;    // paper, data set or "trainyard calibrate"
  std::string machine;   // what it was measured on
  std::string date;      // year, or year-month-day
  std::string samples;   // what and how many
  std::string residual;  // error of the fit on what it was not fitted on, e.g. "MAPE 6.1 %"
  Basis basis = Basis::analytic;
};

// T = t0 + (X^p + Y^p)^(1/p), X = 2mnk / (e P), Y = bytes / (u W); P and W are the GPU's datasheet
// peak and bandwidth. Source: docs/cost-gemm.md.
struct GemmLaw {
  Dtype dtype = Dtype::fp16;
  Seconds fixed{};                // t0
  double compute_efficiency = 1;  // e
  double memory_efficiency = 1;   // u
  double exponent = 1;            // p in [1, 8]
  Provenance from;
};

// T = fixed + bytes / (efficiency W); what fits into the L2 runs `l2_speedup` times as fast, what
// is twice as large or more does not, and between the two the gain fades linearly. Source:
// docs/cost-memory-bound.md.
struct MemoryLaw {
  MemoryOp op = MemoryOp::elementwise;
  Seconds fixed{};
  double efficiency = 1;
  double l2_speedup = 1;
  Provenance from;
};

// Fused attention reaches these shares of the dense peak: T = t0 of the GEMM law + flops / (share
// P). Source: docs/cost-attention.md.
struct AttentionLaw {
  double forward = 1;
  double backward = 1;
  Provenance from;
};

// Factors on the compute efficiency of the GEMM law of the same type, multiplied where they apply.
// Source: docs/cost-convolution.md.
struct ConvolutionLaw {
  Dtype dtype = Dtype::fp16;
  double efficiency = 1;    // every convolution
  double kernel_3x3 = 1;    // above 1 where the library has a better algorithm for it
  double few_channels = 1;  // fewer than 16 input channels (of one group)
  double data_gradient = 1;
  double weight_gradient = 1;
  Provenance from;
};

// T(S) = a + S / B + c sqrt(S / 1 MB), S the whole buffer; measured on `ranks` ranks on `servers`
// servers. Source: docs/cost-messages.md.
struct CollectiveLaw {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 1;
  int servers = 1;
  Seconds start{};           // a
  BytesPerSecond bandwidth;  // B (algorithm bandwidth)
  Seconds per_sqrt_MB{};     // c
  bool in_switch = false;    // the switch reduces: (n+1)/n S cross a link instead of 2(n-1)/n S
  Provenance from;
};

// T(S) = start + S / bandwidth between two ranks.
struct PointToPointLaw {
  bool same_server = true;
  Seconds start{};
  BytesPerSecond bandwidth;
  Provenance from;
};

struct Profile {
  std::string name;  // "a100-sxm4-80gb"
  std::string gpu;   // GpuSpec::name it was made on; another GPU is refused
  std::vector<GemmLaw> gemm;
  double batched_gemm_efficiency = 1;  // factor on e for batch > 1
  Provenance batched_gemm_from;
  std::optional<AttentionLaw> attention;    // without: the batched GEMM of the same FLOPs
  std::vector<ConvolutionLaw> convolution;  // without: the GEMM of the same shape
  std::vector<MemoryLaw> memory;
  std::vector<CollectiveLaw> collectives;
  std::vector<PointToPointLaw> point_to_point;
  int collective_channels = 0;  // multiprocessors a collective holds
  int point_to_point_channels = 0;
  Provenance channels_from;
  Seconds launch{};  // host time per kernel launch
  Provenance launch_from;
};

// Reads a profile file (docs/cost-gemm.md shows one). Throws ScenarioError with every mistake
// found.
Profile read_profile(const std::string& path);

// What the simulator asks: costs of one GPU type, fitted where the profile has a law and analytic
// (roofline on the datasheet, closed forms) where it has none.
struct MachinePeaks {
  FlopsPerSecond fp32, tf32, fp16, bf16, fp8;  // 0: the chip has no such unit
  BytesPerSecond memory_bandwidth;
  Bytes l2;
};
// The costs copy what they need; the profile need not outlive them.
std::unique_ptr<ComputeCost> fitted_compute_cost(const Profile& profile, const MachinePeaks& peaks);
std::unique_ptr<ComputeCost> roofline_compute_cost(const MachinePeaks& peaks);
std::unique_ptr<MessageCost> fitted_message_cost(const Profile& profile);
std::unique_ptr<MessageCost> closed_form_message_cost();

}  // namespace trainyard
