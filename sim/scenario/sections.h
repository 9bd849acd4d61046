// The sections of a scenario file as structs, one visit_fields table each (json/fields.h). What a
// file says, before it is checked and turned into a Scenario.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/network.h"
#include "sim/json/fields.h"
#include "sim/json/reader.h"
#include "sim/plan/recipe.h"
#include "topologies/cluster.h"

namespace trainyard {

struct ImageInput {
  std::vector<std::int64_t> image_size;  // channels, height, width
};

struct MoeSection {
  std::int64_t experts = 1, top_k = 1;
  std::optional<std::int64_t> expert_ffn_hidden, shared_ffn_hidden;
  std::int64_t shared_experts = 0, first_dense = 0, every = 1;
};

struct ModelSection {
  bool built = false;  // "preset" names a network builder: no field of a transformer is due
  Transformer transformer;
  std::optional<std::int64_t> kv_heads, head_size, ffn_hidden, max_positions;
  std::optional<MoeSection> moe;
  ImageInput input;
};

struct GpuSection {
  GpuSpec spec;
};

struct IntraSection {
  IntraKind kind = IntraKind::nvswitch;
  BytesPerSecond bandwidth;
  Duration latency{};
  std::vector<NvlinkPair> mesh;
};

struct NicSection {
  BytesPerSecond bandwidth;
  Duration latency{};
  bool rail_per_gpu = true;
  double efficiency = 1;
};

struct HostSection {
  BytesPerSecond pcie_bandwidth, socket_bandwidth;
  int sockets = 1, gpus_per_pcie_switch = 1;
  Bytes memory, nvme_capacity;
  BytesPerSecond memory_bandwidth, nvme_read_bandwidth, nvme_write_bandwidth;
};

struct ServerSection {
  std::string name;
  GpuSection gpu;
  int gpus = 1;
  IntraSection intra;
  int nics = 0;
  NicSection nic;
  HostSection host;
};

struct FabricSection {
  std::size_t kind = 0;  // of kFabricKinds
  SingleSwitch single_switch;
  FatTree fat_tree;
  Clos clos;
};

struct ClusterSection {
  int nodes = 1;
  ServerSection node;
  FabricSection fabric;
  std::string calibration;
  bool calibration_of_other_gpu = false;
};

struct PrecisionSection {
  Dtype compute = Dtype::bf16;
  std::optional<Dtype> gradients;
  std::optional<bool> master_weights;
};

struct OptimizerSection {
  Optimizer type = Optimizer::adam;
  bool momentum = false;
};

struct OffloadSection {
  OffloadTo optimizer = OffloadTo::none, parameters = OffloadTo::none;
  bool activations = false;
  std::optional<double> fraction;
  std::optional<int> prefetch_layers;
  std::optional<std::int64_t> tile_parameters;
};

struct TrainingSection {
  std::int64_t global_batch = 1, micro_batch = 1;
  std::optional<std::int64_t> sequence_length;
  PrecisionSection precision;
  OptimizerSection optimizer;
  Recompute recompute = Recompute::none;
  bool fused_attention = false;
  Fusion execution = Fusion::by_hand;
  std::optional<Duration> launch_time;
  bool gradient_clipping = false;
  OffloadSection offload;
  std::optional<double> tokens;
};

struct PipelineSection {
  std::string schedule = "1f1b";
  CustomSchedule custom;
  std::optional<int> chunks;
  std::string layer_split = "uniform";
  std::vector<int> layers_per_chunk;
  bool overlap_p2p = true;
};

struct TensorParallelSection {
  TensorOverlap overlap = TensorOverlap::weight_gradient;
};

struct ContextParallelSection {
  ContextMethod method = ContextMethod::ring;
};

struct ExpertParallelSection {
  std::optional<double> capacity_factor;
  std::vector<double> load;
  double imbalance = 0;
};

struct DataParallelSection {
  std::string kind = DataParallelOptions{}.kind;
  std::optional<int> shard_size, prefetch_layers, steps_between;
  std::optional<bool> limit_all_gathers, reshard_after_forward, overlap_param_gather;
  std::optional<bool> all_reduce_gradients, reduce_every_microbatch;
  std::optional<Dtype> reduce_dtype;
  Bytes bucket_size = ParallelPlan{}.bucket_size;
  Bytes first_bucket_size = ParallelPlan{}.first_bucket_size;
  bool overlap_backward = true;
};

struct ParallelismSection {
  int tp = 1, cp = 1, pp = 1, ep = 1;
  std::optional<int> dp, etp;
  std::array<Axis, kAxes> rank_order = {Axis::tensor, Axis::context, Axis::data, Axis::pipeline};
  bool sequence_parallel = false;
  PipelineSection pipeline;
  TensorParallelSection tensor_parallel;
  ContextParallelSection context_parallel;
  ExpertParallelSection expert_parallel;
  DataParallelSection data_parallel;
};

struct CollectiveChoice {
  std::string algorithm = "auto", protocol = "auto";
};
struct CollectivesSection {
  std::string library = "nccl";
  CollectiveChoice all_reduce, all_gather, reduce_scatter, p2p;
};

struct StragglerSelect {
  std::optional<int> rank, node;
};
struct StragglerSection {
  StragglerSelect select;
  double compute_slowdown = 1;
  std::string reason;
};
struct PerturbationsSection {
  std::vector<StragglerSection> stragglers;
};

struct SimulationSection {
  Fidelity fidelity = Fidelity::closed_form;
  std::uint64_t seed = 0;
  bool exploit_symmetry = true;
};

struct ReferenceSection {
  std::string label, metric, status;
  std::optional<double> value;
};

struct VariantSection {
  std::string name, label;
};

struct OutputsSection {
  std::string directory;
};

struct ScenarioSections {
  int version = 1;
  std::string name, label, description;
  std::vector<ReferenceSection> references;
  ModelSection model;
  ClusterSection cluster;
  TrainingSection training;
  ParallelismSection parallelism;
  CollectivesSection collectives;
  PerturbationsSection perturbations;
  SimulationSection simulation;
  std::string baseline;
  std::vector<VariantSection> variants;
  OutputsSection outputs;
};

void visit_fields(json::Fields& f, ModelSection& s);
void visit_fields(json::Fields& f, ImageInput& s);
void visit_fields(json::Fields& f, GpuSection& s);
void visit_fields(json::Fields& f, IntraSection& s);
void visit_fields(json::Fields& f, NvlinkPair& s);
void visit_fields(json::Fields& f, NicSection& s);
void visit_fields(json::Fields& f, HostSection& s);
void visit_fields(json::Fields& f, ServerSection& s);
void visit_fields(json::Fields& f, FabricSection& s);
void visit_fields(json::Fields& f, ClosLevel& s);
void visit_fields(json::Fields& f, ClusterSection& s);
void visit_fields(json::Fields& f, PrecisionSection& s);
void visit_fields(json::Fields& f, OptimizerSection& s);
void visit_fields(json::Fields& f, OffloadSection& s);
void visit_fields(json::Fields& f, TrainingSection& s);
void visit_fields(json::Fields& f, PipelineSection& s);
void visit_fields(json::Fields& f, TensorParallelSection& s);
void visit_fields(json::Fields& f, ContextParallelSection& s);
void visit_fields(json::Fields& f, ExpertParallelSection& s);
void visit_fields(json::Fields& f, MoeSection& s);
void visit_fields(json::Fields& f, LatentAttention& s);
void visit_fields(json::Fields& f, DataParallelSection& s);
void visit_fields(json::Fields& f, ParallelismSection& s);
void visit_fields(json::Fields& f, CollectiveChoice& s);
void visit_fields(json::Fields& f, CollectivesSection& s);
void visit_fields(json::Fields& f, StragglerSelect& s);
void visit_fields(json::Fields& f, StragglerSection& s);
void visit_fields(json::Fields& f, PerturbationsSection& s);
void visit_fields(json::Fields& f, SimulationSection& s);
void visit_fields(json::Fields& f, ReferenceSection& s);
void visit_fields(json::Fields& f, VariantSection& s);
void visit_fields(json::Fields& f, OutputsSection& s);
void visit_fields(json::Fields& f, ScenarioSections& s);

// Every key of the format, for "belongs under".
json::KeyIndex scenario_keys();

}  // namespace trainyard
