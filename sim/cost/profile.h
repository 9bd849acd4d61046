// A profile: the constants of one machine's cost models, with their provenance. Read from
// configs/profiles/*.json; no number of it is ever in code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layer/kernel.h"
#include "sim/base/diagnostic.h"
#include "sim/cost/calibration.h"
#include "sim/cost/cost.h"

namespace trainyard::cost {

// Where a group of constants comes from, shown in the report.
struct Provenance {
  std::string source;    // paper, data set or "trainyard fit"
  std::string machine;   // what it was measured on
  std::string date;      // year, or year-month-day
  std::string samples;   // what and how many
  std::string residual;  // error of the fit on what it was not fitted on, e.g. "MAPE 6.1 %"
  Basis basis = Basis::analytic;
  std::string reason{};  // why it is extrapolated; empty: of another machine. In no file
  friend bool operator==(const Provenance&, const Provenance&) = default;
};

// Sizes that a law was fitted on; outside them its estimates are extrapolated. Zero: not said, so
// that any size counts as inside.
struct SizeRange {
  std::int64_t least = 0, most = 0;
  friend bool operator==(const SizeRange&, const SizeRange&) = default;
};

// One measured shape: what was measured over what the law says.
struct GemmResidual {
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  double factor = 1;  // measured time / time of the law
  friend bool operator==(const GemmResidual&, const GemmResidual&) = default;
};

// The result is computed in tiles, one per multiprocessor at a time: at the full clock a product is
// as fast as its waves, however little of the last is filled; how fast many waves are, power says.
// Source: docs/cost-gemm.md.
struct GemmTiles {
  int multiprocessors = 1;
  double half = 1;      // what tiles of 128 x 128 reach of what those of 256 x 128 do
  double smaller = 1;   // what each smaller grade reaches of the one before
  double prologue = 0;  // K0: what starts and ends a tile, in terms of its sums
  friend bool operator==(const GemmTiles&, const GemmTiles&) = default;
};

// Shares of e and u that products reach whose rows begin at multiples of 2, 4 or 8 bytes only
// (models::row_alignment): libraries have their best kernels for 16. Source: docs/cost-gemm.md.
struct GemmUnaligned {
  double bytes_2 = 1, bytes_4 = 1, bytes_8 = 1;
  Provenance from{};
  friend bool operator==(const GemmUnaligned&, const GemmUnaligned&) = default;
};

// T = t0 + (X^p + Y^p)^(1/p), X = 2mnk / (e P), Y = bytes / (u W); P and W are the GPU's datasheet
// peak and bandwidth; times the residual of the shape where one is measured, or of its neighbours.
// Source: docs/cost-gemm.md.
struct GemmLaw {
  models::Dtype dtype = models::Dtype::fp16;
  Seconds fixed{};                         // t0
  double compute_efficiency = 1;           // e
  double memory_efficiency = 1;            // u
  double exponent = 1;                     // p in [1, 8]
  std::optional<GemmTiles> tiles;          // without: X as it stands
  std::optional<GemmUnaligned> unaligned;  // without: as aligned ones
  // fp8: T with a scale for each row, block of 128 or 32 numbers over T with one for each tensor.
  std::optional<double> row_scaled, block_scaled, micro_scaled;
  // e of runs that end before power lowers the clock, over e of settled ones.
  std::optional<double> short_run;
  SizeRange m, n, k;
  std::vector<GemmResidual> residuals;
  Provenance from;
  friend bool operator==(const GemmLaw&, const GemmLaw&) = default;
};

// T = fixed + bytes / (efficiency W); what fits into the L2 runs `l2_speedup` times as fast, what
// is twice as large or more does not, and between the two the gain fades linearly. Numbers that are
// handled one by one take n / (element_rate P32) at least, P32 the fp32 peak in FLOP/s. Source:
// docs/cost-memory-bound.md.
struct MemoryLaw {
  models::MemoryOp op = models::MemoryOp::elementwise;
  Seconds fixed{};
  double efficiency = 1;
  std::optional<double> backward_efficiency;  // without: efficiency
  double l2_speedup = 1;
  std::optional<double> element_rate;  // numbers one by one per FLOP; without: as fast as memory
  Bytes least, most;                   // moved bytes it was fitted on; zero: not said
  Provenance from;
  friend bool operator==(const MemoryLaw&, const MemoryLaw&) = default;
};

// Attention reaches these shares of the dense peak: T = fixed + flops (1 + keys / k) / (share P),
// with k the keys that a query sees. A law may be of one kernel, type, head size or masking only.
// Source: docs/cost-attention.md.
struct AttentionLaw {
  std::optional<models::AttentionKernel> kernel;  // without: any
  std::optional<models::Dtype> dtype;
  std::int64_t head_size = 0;                            // 0: any
  std::optional<bool> causal;                            // without: both
  std::optional<Seconds> forward_fixed, backward_fixed;  // without: t0 of the GEMM law
  double forward = 1;
  double backward = 1;
  double forward_keys = 0, backward_keys = 0;
  SizeRange length;  // query_length
  Provenance from;
  friend bool operator==(const AttentionLaw&, const AttentionLaw&) = default;
};

// One measured convolution: what was measured over what the law says.
struct ConvolutionResidual {
  models::Convolution shape;  // dtype: that of its law
  double factor = 1;
  friend bool operator==(const ConvolutionResidual&, const ConvolutionResidual&) = default;
};

// Of Winograd's algorithm, which no stride can have.
//   fused:    one kernel, whose gain kernel_3x3 is, without strides only
//   separate: kernels that transform images around a product, where they are quicker
enum class WinogradUse : std::uint8_t { none, fused, separate };

// Factors on the compute efficiency of the GEMM law of the same type, multiplied where they apply;
// the table corrects the shapes of known networks. Source: docs/cost-convolution.md.
struct ConvolutionLaw {
  models::Dtype dtype = models::Dtype::fp16;
  double efficiency = 1;    // every convolution
  double kernel_3x3 = 1;    // above 1 where the library has a better algorithm for it
  double few_channels = 1;  // fewer than 16 input channels (of one group)
  double data_gradient = 1;
  double weight_gradient = 1;
  double strided_data_gradient = 1;  // besides, where images are larger than what comes out
  bool channels_first = false;       // measured in NCHW, with what that copies
  double half_rate_tiles = 0;        // tiles of the result at which it runs at half its rate
  WinogradUse winograd = WinogradUse::none;
  std::vector<ConvolutionResidual> residuals;
  Provenance from;
  friend bool operator==(const ConvolutionLaw&, const ConvolutionLaw&) = default;
};

// Whether its images are larger than what comes out, as with a stride of 2 or more.
bool strided(const models::Convolution& convolution);

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
  Bytes least, most;         // buffers it was fitted on; zero: not said
  Provenance from;
  friend bool operator==(const CollectiveLaw&, const CollectiveLaw&) = default;
};

// What a collective of nearly no bytes costs: start + steps per_step, with the steps of a ring
// inside one server. The least latency where no law of the same kind was measured.
struct CollectiveStart {
  Seconds start{};
  Seconds per_step{};
  Provenance from;
  friend bool operator==(const CollectiveStart&, const CollectiveStart&) = default;
};

// T(S) = start + S / bandwidth between two ranks.
struct PointToPointLaw {
  bool same_server = true;
  Seconds start{};
  BytesPerSecond bandwidth;
  Bytes least, most;  // messages it was fitted on; zero: not said
  Provenance from;
  friend bool operator==(const PointToPointLaw&, const PointToPointLaw&) = default;
};

// T(S) = start + S / bandwidth between a GPU and its host (sim/cost/host_copies.h). What is
// simulated copies from and to pinned memory.
struct HostCopyLaw {
  bool to_device = true;
  bool pinned = true;
  Seconds start{};
  BytesPerSecond bandwidth;
  Provenance from;
  friend bool operator==(const HostCopyLaw&, const HostCopyLaw&) = default;
};

// While communication holds c of SM multiprocessors, a kernel runs at 1 - w c / SM of its speed.
// Without it w is 1 for every kernel. Source: docs/cost-messages.md.
struct OverlapLaw {
  double gemm = 1;           // w of GEMMs, attention and convolutions
  double memory_bound = 1;   // w of memory-bound kernels
  double communication = 1;  // share of its rate that communication keeps beside compute
  Provenance from;
  friend bool operator==(const OverlapLaw&, const OverlapLaw&) = default;
};

// Products of several experts in one kernel, of r rows each, take (1 + R / r) times as long as the
// law of products says of all together. Source: docs/cost-gemm.md.
struct GroupedGemmLaw {
  double rows = 0;         // R
  double weight_rows = 0;  // R where gradients of weights are summed over the r rows
  Provenance from;
  friend bool operator==(const GroupedGemmLaw&, const GroupedGemmLaw&) = default;
};

// Random numbers that an attention kernel draws for dropout, one for each score that is not masked:
// n of them take n / (rate P32) longer, P32 the fp32 peak in FLOP/s. Source:
// docs/cost-attention.md.
struct AttentionDropoutLaw {
  models::AttentionKernel kernel = models::AttentionKernel::cudnn;  // no other's is known
  double forward = 1, backward = 1;                                 // numbers per FLOP
  Provenance from;
  friend bool operator==(const AttentionDropoutLaw&, const AttentionDropoutLaw&) = default;
};

// What starting work costs beside the host's time of one launch.
struct LaunchDetails {
  std::optional<Seconds> graph_node;    // device time per node of a graph of empty kernels
  std::optional<Seconds> event_record;  // host time
  std::optional<Seconds> stream_wait;   // host time
  std::optional<Seconds> empty_kernel;  // device time of a kernel that does nothing, back to back
  friend bool operator==(const LaunchDetails&, const LaunchDetails&) = default;
};

struct Profile {
  std::string name;                    // "a100-sxm4-80gb"
  std::string gpu;                     // GpuSpec::name it was made on; another GPU is refused
  std::optional<Watts> settled_power;  // at which products ran for seconds, its clock held down
  std::vector<GemmLaw> gemm;
  double batched_gemm_efficiency = 1;  // factor on e for batch > 1
  Provenance batched_gemm_from;
  std::optional<GroupedGemmLaw> grouped_gemm;  // without: as one product of all rows
  std::vector<AttentionLaw> attention;         // without: the batched GEMM of the same FLOPs
  std::optional<AttentionDropoutLaw> attention_dropout;  // without: dropout takes no time
  std::vector<ConvolutionLaw> convolution;               // without: the GEMM of the same shape
  std::vector<MemoryLaw> memory;
  std::vector<CollectiveLaw> collectives;
  std::optional<CollectiveStart> collective_start;
  std::vector<PointToPointLaw> point_to_point;
  std::vector<HostCopyLaw> host_copies;
  int collective_channels = 0;  // multiprocessors a collective holds
  int point_to_point_channels = 0;
  Provenance channels_from;
  std::optional<OverlapLaw> overlap;
  Seconds launch{};  // host time per kernel launch
  LaunchDetails launch_details;
  Provenance launch_from;
  std::optional<Calibration> calibration;
  friend bool operator==(const Profile&, const Profile&) = default;
};

// Reads a profile file (docs/cost-gemm.md shows one). Throws ScenarioError with every mistake
// found.
Profile read_profile(const std::string& path);

// The file that read_profile reads back equal. A group of constants without provenance (an empty
// source) is left out.
std::string profile_json(const Profile& profile);

// What read_profile would say of that file: numbers beyond what a machine may have.
std::vector<Diagnostic> profile_problems(const Profile& profile);

// The profile for another GPU than the one it was made on: every law is extrapolated, and the
// tables of measured shapes, which are of that GPU's tiles and caches, are left out.
Profile for_other_gpu(Profile profile);

// A fitted GPU whose laws stand in for those of another one.
struct Kin {
  Profile profile;
  BytesPerSecond link;    // of its server's switch, per GPU and direction; 0: not known
  double arithmetic = 1;  // what the GPU reaches of its shares of peaks, by its power
};

// What a GPU that draws `busy` reaches of the shares of peak of the profile, whose GPU's peak is
// `peaks` times its own: the same chip at the same power has the same rate. 1 where either power
// is not known, and at most. Source: docs/cost-gemm.md, Power limits.
double share_at_power(const Profile& profile, Watts busy, double peaks);

// The profile of a GPU that nobody has measured: medians of what fitted GPUs of its kind reach of
// their peaks (times `arithmetic` those of products, attention and convolutions) and, in a server,
// of their links; `link` is the GPU's own. All of it is extrapolated.
// Left out are tables of measured shapes, fitted sizes, copies to the host, laws between servers
// and, where either side's link is 0, those inside one. Requires: kin.
Profile median_profile(const std::vector<Kin>& kin, BytesPerSecond link);

// Leaves out tiles of another number of multiprocessors: they are of another chip, and e alone, of
// large products, is what it may lend.
void keep_tiles_of(Profile& profile, int multiprocessors);

// The law that prices the kernel: its own (for `usual`, that of the first law), else that of any,
// else that of a neighbour among those that keep no scores; of the same type or the other 16-bit
// one, of the nearest head size and masking. Null: there is none.
const AttentionLaw* attention_law(const Profile& profile, const models::Attention& attention);

// What the simulator asks: costs of one GPU type, fitted where the profile has a law and analytic
// (roofline on the datasheet, closed forms) where it has none.
struct MachinePeaks {
  FlopsPerSecond fp32, tf32, fp16, bf16, fp8;  // 0: the chip has no such unit
  BytesPerSecond memory_bandwidth;
  Bytes l2;
  double power = 1;  // limit over the power that the board draws without one, in (0, 1]
};
// The costs copy what they need; the profile need not outlive them.
std::unique_ptr<ComputeCost> fitted_compute_cost(const Profile& profile, const MachinePeaks& peaks);
std::unique_ptr<ComputeCost> roofline_compute_cost(const MachinePeaks& peaks);
std::unique_ptr<MessageCost> fitted_message_cost(const Profile& profile);
std::unique_ptr<MessageCost> closed_form_message_cost();

// Where the law is from by which fitted_compute_cost(profile, peaks) prices the kernel; of
// attention and convolutions without a law of their own that of the GEMM law. Null: the roofline
// prices it, or its time was given. Lives as long as the profile.
const Provenance* law_origin(const Profile& profile, const MachinePeaks& peaks,
                             const models::Kernel& kernel);

}  // namespace trainyard::cost
