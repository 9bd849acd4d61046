// A profile: the constants of one machine's cost models, with their provenance. Read from
// configs/profiles/*.json; no number of it is ever in code.
#pragma once

#include <array>
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
  std::string date;
  std::string samples;   // what and how many
  std::string residual;  // error of the fit on what it was not fitted on, e.g. "MAPE 6.1 %"
  Basis basis = Basis::analytic;
};

// T = t0 + (X^p + Y^p)^(1/p), X = 2mnk / (e P), Y = bytes / (u W); P and W are the GPU's datasheet peak and
// bandwidth. Source: docs/cost-gemm.md (cost-models B1).
struct GemmLaw {
  Dtype dtype = Dtype::fp16;
  Seconds fixed{};               // t0
  double compute_efficiency = 1; // e
  double memory_efficiency = 1;  // u ("m" in B1)
  double exponent = 1;           // p, clamped by the reader to [1, 8]
  Provenance from;
};

// T = fixed + bytes / (efficiency W); below `l2_bytes` the bandwidth is `l2_speedup` times as high.
struct MemoryLaw {
  MemoryOp op = MemoryOp::elementwise;
  Seconds fixed{};
  double efficiency = 1;
  double l2_speedup = 1;
  Provenance from;
};

// T(S) = a + S / B + c sqrt(S / 1 MB), S the whole buffer; measured on `ranks` ranks on `servers` servers.
// Source: cost-models A3.
struct CollectiveLaw {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 1;
  int servers = 1;
  Seconds start{};           // a
  BytesPerSecond bandwidth;  // B (algorithm bandwidth)
  Seconds per_sqrt_MB{};     // c
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
  std::string name;    // "a100-sxm4-80gb"
  std::string gpu;     // GpuSpec::name it was made on; another GPU is refused
  std::vector<GemmLaw> gemm;
  double batched_gemm_efficiency = 1;       // factor on e for batch > 1 (B3: 0.6)
  double fused_attention_forward = 1;       // reached share of the dense peak, forward
  double fused_attention_backward = 1;
  Provenance attention_from;
  double convolution_efficiency = 1;        // factor on e of the GEMM law, forward (B4)
  double convolution_3x3 = 1, convolution_few_channels = 1;
  double convolution_data_gradient = 1, convolution_weight_gradient = 1;
  Provenance convolution_from;
  std::vector<MemoryLaw> memory;
  std::vector<CollectiveLaw> collectives;
  std::vector<PointToPointLaw> point_to_point;
  int collective_channels = 0;              // multiprocessors a collective holds (A1)
  int point_to_point_channels = 0;
  Provenance channels_from;
  Seconds launch{};                         // host time per kernel launch
  Provenance launch_from;
};

// Reads a profile file. Throws ScenarioError with every mistake found.
Profile read_profile(const std::string& path);

// What the simulator asks: costs of one GPU type, fitted where the profile has a law and analytic (roofline
// on the datasheet, closed forms A4) where it has none.
struct MachinePeaks {
  FlopsPerSecond fp32, tf32, fp16, bf16, fp8;
  BytesPerSecond memory_bandwidth;
  Bytes l2;
};
std::unique_ptr<ComputeCost> fitted_compute_cost(const Profile& profile, const MachinePeaks& peaks);
std::unique_ptr<ComputeCost> roofline_compute_cost(const MachinePeaks& peaks);
std::unique_ptr<MessageCost> fitted_message_cost(const Profile& profile);
std::unique_ptr<MessageCost> closed_form_message_cost();

}  // namespace trainyard
