// What a user wants to know of a simulated step, as plain values: the writers of cli/report turn it
// into text, JSON, Perfetto tracks and HTML. Definitions: docs/results.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/basis.h"
#include "sim/base/units.h"
#include "sim/cost/calibration.h"
#include "sim/plan/memory_kind.h"
#include "sim/scenario/assumption.h"
#include "sim/simulate/monitor/monitor.h"
#include "sim/simulate/outlook/cloud_or_own.h"
#include "sim/simulate/outlook/interval.h"
#include "sim/simulate/report/input_report.h"
#include "sim/simulate/report/server_updates.h"
#include "sim/simulate/report/shares/gpu_share.h"
#include "sim/simulate/report/shares/job_share.h"
#include "sim/simulate/report/way_to_fit.h"
#include "sim/simulate/slowest_gpu.h"

namespace trainyard::simulate {

// Every picosecond of the step of the rank with the longest step belongs to exactly one of these.
enum class TimeCategory : std::uint8_t {
  compute,     // a kernel runs on the compute stream
  exposed_tp,  // the compute stream waits for a transfer of its own that is in flight, by its group
  exposed_cp,
  exposed_ep,
  exposed_dp,
  exposed_pp,
  exposed_host_copy,  // the same of copies from and to the host, and of NVMe
  bubble,             // waits for another rank that has not yet sent or joined
  optimizer,          // optimizer kernels run
  host_optimizer,     // the host updates what is offloaded, and no kernel runs
  host,               // the next kernel is not yet issued by the host
  input,              // waits for input
};
inline constexpr std::size_t kTimeCategories = 12;
std::string_view name(TimeCategory category);  // as in JSON: "compute", "exposed_tp", ...

using Breakdown = std::array<Duration, kTimeCategories>;

// What one rank holds outside its GPU, and all ranks of the server that holds most.
struct HostMemoryReport {
  bool fits = true;
  Bytes parameters, gradients, optimizer_state, activations, buffers;  // of `rank`
  Bytes memory, nvme;                                                  // of `rank`
  int rank = 0;                                                        // that holds most
  std::string role;  // its name, if it is no rank: "parameter server"
  Bytes server_memory, server_nvme;
  Bytes memory_capacity, nvme_capacity;  // of a server; 0: not stated
};

struct MemoryReport {
  bool fits = true;
  // It fits because the allocator gives back what it would keep: it may end out of memory all the
  // same, and waits for the GPU when it does not.
  bool is_tight = false;
  Bytes peak, capacity;       // of the device
  Bytes wanted;               // that it would hold if there were room
  Bytes allocated, reserved;  // of that peak, by the framework's allocator (device_memory.h)
  Bytes late;                 // of both: comes back to an allocator that waits
  int peak_rank = 0;
  Duration peak_at{};
  std::array<Bytes, plan::kMemoryKinds> by_category{};  // at the peak; sums to it
  struct Owner {
    plan::MemoryKind category;
    std::string name;
    Bytes bytes;
  };
  std::vector<Owner> owners;  // largest first, at the peak; at most 12
  // Activations at the peak by module, of all layers and micro-batches; largest first.
  struct ModuleBytes {
    std::string module;  // as models name it: "attention scores"
    Bytes bytes;
  };
  std::vector<ModuleBytes> activations;
};

// Share of the step's predicted kernel and message time by the basis of its estimate.
struct BasisShare {
  Basis basis;
  double fraction = 0;
};

struct SourceNote {
  std::string what;  // "GEMM fp16", "all-reduce, 8 ranks"
  std::string source, machine, residual;
  Basis basis;
};

// What is predicted beyond what a law was fitted on, and how.
struct Extrapolation {
  std::string what;     // "gemm bf16 8192x128256x16384", "all-reduce of 2 GiB, 8 ranks"
  std::string why;      // "n is beyond the 65536 fitted"
  double fraction = 0;  // of the predicted time
};

// The whole training: as many steps as its samples take, each as long as the simulated one.
struct TrainingTotal {
  double samples = 0, tokens = 0;  // tokens: 0 where samples have none
  double steps = 0;                // whole
  // Of a step that has a time.
  double days = 0, gpu_hours = 0;
  std::optional<double> gpu_hour, dollars;  // the price of one, and of all
  std::optional<double> kilowatt_hours;     // of the GPUs, where their power is known
};

// Of the GPUs alone, by monitor/loads.h.
struct StepEnergy {
  double joules = 0;  // of all of them in one step
  double watts = 0;   // mean of one
  double joules_per_sample = 0;
  std::optional<double> joules_per_token;
  // Where the hottest settles after many steps; empty: cooling not known.
  std::optional<double> celsius;
  std::vector<double> watts_by_gpu_kind;  // mean of one of each kind, 0: of none
};

// A number of the scenario's references, and what is predicted for it.
struct Published {
  std::string label, metric;
  double value = 0;
  std::optional<double> predicted;  // empty: the metric is not known, or the step has none
};

struct StepReport {
  std::string name, label, description;
  int world_size = 0;
  int tensor = 1, context = 1, expert = 1, data = 1, pipeline = 1;
  std::string schedule;
  int stages = 1, chunks = 1, microbatches = 1;
  bool overlap_passes = false;
  std::string gpu, server;
  int servers = 1;
  std::int64_t parameters = 0;  // of the whole network, adapters included
  std::int64_t trained = 0;     // of these
  std::int64_t global_batch = 0, sequence_length = 0;
  std::int64_t document_length = 0;  // beyond which no token attends; 0: a sequence is one
  bool is_language = true;           // tokens mean something

  bool fits = true;
  bool has_room() const { return fits && !memory.is_tight; }
  std::optional<std::string> deadlock;  // text; then no time is known
  std::optional<Duration> step_time;    // empty if it does not fit or never finishes
  Duration simulated_step{};            // what it would take with enough memory
  EstimateClass estimate_class;
  std::optional<Interval> interval;  // of step_time; empty: none, or nothing to tell it by
  double samples_per_s = 0, tokens_per_s = 0, tokens_per_s_per_gpu = 0;
  // Per step. Attention counts what its mask leaves, or by the convention of PaLM and Megatron-LM
  // the full square.
  double model_flops = 0, full_square_flops = 0;
  double model_tflops_per_gpu = 0, full_square_tflops_per_gpu = 0;
  double mfu = 0, full_square_mfu = 0, hfu = 0;
  Breakdown breakdown{};  // of `slowest_rank`; sums to simulated_step
  int slowest_rank = 0;
  struct RankBreakdown {
    int rank = 0, count = 1, stage = 0;  // representative, ranks it stands for
    Breakdown breakdown{};               // sums to simulated_step: idle after its end is bubble
    Bytes memory{};                      // the most that its device holds
    Bytes allocated{}, reserved{};       // of that, as MemoryReport
  };
  std::vector<RankBreakdown> ranks;
  std::vector<GpuShare> gpu_shares;  // by name; empty: all do alike
  std::vector<JobShare> jobs;        // on the cluster, this one first; empty: it is alone
  double bubble_fraction = 0;        // idle share of the compute streams, over all ranks
  Bytes pipeline_bytes;              // that stages send each other, over all ranks
  MemoryReport memory;
  std::optional<HostMemoryReport> host_memory;  // if something is offloaded
  double counted = 1;  // part of global_batch whose gradients are used, as rates count
  std::optional<InputReport> input;            // where ranks wait for batches
  std::optional<UpdateReport> server_updates;  // where ranks do not wait for each other
  std::vector<BasisShare> basis;
  std::vector<SourceNote> sources;
  std::vector<Extrapolation> extrapolated;       // largest first
  std::optional<cost::Calibration> calibration;  // of the profile, if `trainyard fit` made it
  SlowestGpu slowest_gpu;                        // of those that the job waits for
  std::string profile, fidelity;
  std::string device = "GPU";  // what ranks are, in one word: CPU where all are processors
  std::string uncalibrated;  // what the GPU is priced by instead of a profile of its own; or empty
  std::optional<TrainingTotal> training;   // empty: how long it is was not said
  std::optional<StepEnergy> energy;        // empty: nobody needs it, or the power is not known
  std::optional<CloudOrOwn> cloud_or_own;  // empty: not asked
  std::optional<Monitor> monitor;          // empty: not asked
  std::vector<Published> published;
  std::uint64_t events = 0, ops = 0;
  int classes = 0;
  std::vector<scenario::Assumption> assumed;  // what the scenario leaves out
  std::string software;                       // that decides some of it; may be empty
  std::vector<scenario::Assumption> habits;   // what it decides
  std::vector<std::string> warnings;
  std::optional<WaysToFit> ways_to_fit;  // empty: it fits, or they were not asked for
};

}  // namespace trainyard::simulate
