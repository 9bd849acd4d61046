// The sections of a scenario file as structs, one visit_fields table each (json/fields.h). What a
// file says, before it is checked and turned into a Scenario.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/json/fields.h"
#include "sim/json/reader.h"
#include "sim/recipe/recipe.h"
#include "sim/scenario/search_spec.h"
#include "sim/scenario/topics/model/model_family.h"
#include "sim/scenario/topics/model/recommender_sections.h"
#include "topologies/cluster.h"

namespace trainyard::scenario {

struct ClusterSection {
  topologies::ClusterSpec spec;
  std::string calibration;
  bool calibration_of_other_gpu = false;
};

struct OptimizerSection {
  Option<recipe::Optimizer> type = depends(recipe::Optimizer::adam);
  Option<bool> momentum = depends(false);
  recipe::OptimizerOperators operators;
};

struct RecomputeSection {
  std::vector<models::RecomputeModule> modules;
  std::optional<models::RecomputeLayers::Method> method;
  std::optional<int> layers;
};

// Which weights train, as written: groups of targets and "qlora" are not resolved.
struct FinetuneSection {
  enum class Kind : std::uint8_t { full, lora, qlora, frozen };
  enum class Targets : std::uint8_t {
    q_proj,
    k_proj,
    v_proj,
    o_proj,
    gate_proj,
    up_proj,
    down_proj,
    linear_qkv,
    linear_proj,
    linear_fc1,
    linear_fc2,
    attention,
    mlp,
    all_linear
  };
  Kind kind = Kind::full;
  Option<std::int64_t> rank = 8;
  std::vector<Targets> targets;
  Option<double> dropout = 0;
  std::optional<models::Dtype> dtype;
  Option<bool> autocast = false;
  std::optional<models::BaseWeights> base;
  Option<bool> double_quantisation = true;
  Option<models::Unquantised> unquantised = models::Unquantised::stored;
  std::vector<models::Part> trains;
  std::optional<int> last_layers;
};

// Of the whole training: one of the first three.
struct LengthSection {
  std::optional<double> tokens, samples, epochs, dataset_size;
};

// What a device holds beside tensors where the file says nothing.
recipe::MemoryAllowance usual_memory();

struct TrainingSection {
  TrainingSection() { recipe.memory = usual_memory(); }
  recipe::TrainingRecipe recipe;  // as far as the file says it
  OptimizerSection optimizer;
  std::string recompute = "none";  // empty: as recompute_parts says
  RecomputeSection recompute_parts;
  FinetuneSection finetune;
  std::optional<models::Fusion> execution;  // empty: as the network is commonly run
  std::optional<models::TableOptimizer> embedding_optimizer;
  LengthSection length;
};

struct ExpertParallelSection {
  models::ExpertParallel experts;
  std::vector<double> load;
  double imbalance = 0;
};

struct ParallelismSection {
  recipe::ParallelPlan plan;  // as far as the file says it
  std::optional<int> dp;
  ExpertParallelSection expert_parallel;
  std::optional<EmbeddingParallelSection> embedding_parallel;
};

struct CollectiveChoice {
  bool of_group = true;  // has a choice of algorithms and protocols
  std::string algorithm = "auto", protocol = "auto";
};
struct CollectivesSection {
  std::string library = "nccl";
  CollectiveChoice all_reduce, all_gather, reduce_scatter;
  std::optional<CollectiveChoice> broadcast, all_to_all;
  CollectiveChoice p2p{.of_group = false};
};

struct StragglerSelect {
  std::optional<int> rank, node;
};
struct StragglerSection {
  StragglerSelect select;
  double compute_slowdown = 1;
  std::string reason;
};
struct JitterSection {
  double cv = 0;
};
struct PerturbationsSection {
  std::vector<StragglerSection> stragglers;
  JitterSection compute_jitter;
};

struct SimulationSection {
  recipe::Fidelity fidelity = recipe::Fidelity::closed_form;
  std::uint64_t seed = 0;
  bool exploit_symmetry = true;
  bool exploit_periodicity = true;
};

struct ReferenceSection {
  std::string label, metric, status;
  std::optional<double> value;
};

struct CostSection {
  std::optional<double> gpu_hour, server_hour;
  std::optional<recipe::Ownership> own;
};

struct VariantSection {
  std::string name, label;
};

struct OtherJobSection {
  std::string name;
  std::vector<int> gpus_used;
};

struct OutputsSection {
  std::string directory;
};

struct AtLeastAtMost {
  std::optional<std::int64_t> at_least, at_most;
};
struct SearchConstraints {
  std::optional<Bytes> memory;
  std::optional<Duration> step_time;
  AtLeastAtMost batch;  // the global one
};
struct SearchSection {
  std::vector<Objective> objective = {Objective::step_time};
  SearchConstraints constraints;
  int best = 10;
};

struct ScenarioSections {
  int version = 1;
  std::string name, label, description, software;
  std::vector<ReferenceSection> references;
  ModelSection model;
  ClusterSection cluster;
  TrainingSection training;
  ParallelismSection parallelism;
  CollectivesSection collectives;
  PerturbationsSection perturbations;
  SimulationSection simulation;
  CostSection cost;
  std::string baseline;
  std::vector<VariantSection> variants;
  std::vector<OtherJobSection> other_jobs;
  SearchSection search;
  OutputsSection outputs;
};

void visit_fields(json::Fields& f, ClusterSection& s);
void visit_fields(json::Fields& f, OptimizerSection& s);
void visit_fields(json::Fields& f, RecomputeSection& s);
void visit_fields(json::Fields& f, FinetuneSection& s);
void visit_fields(json::Fields& f, TrainingSection& s);
void visit_fields(json::Fields& f, ExpertParallelSection& s);
void visit_fields(json::Fields& f, ParallelismSection& s);
void visit_fields(json::Fields& f, CollectiveChoice& s);
void visit_fields(json::Fields& f, CollectivesSection& s);
void visit_fields(json::Fields& f, StragglerSelect& s);
void visit_fields(json::Fields& f, StragglerSection& s);
void visit_fields(json::Fields& f, JitterSection& s);
void visit_fields(json::Fields& f, PerturbationsSection& s);
void visit_fields(json::Fields& f, SimulationSection& s);
void visit_fields(json::Fields& f, ReferenceSection& s);
void visit_fields(json::Fields& f, VariantSection& s);
void visit_fields(json::Fields& f, OtherJobSection& s);
void visit_fields(json::Fields& f, AtLeastAtMost& s);
void visit_fields(json::Fields& f, SearchConstraints& s);
void visit_fields(json::Fields& f, SearchSection& s);
void visit_fields(json::Fields& f, OutputsSection& s);
void visit_fields(json::Fields& f, ScenarioSections& s);

// Every key of the format, for "belongs under".
json::KeyIndex scenario_keys();

}  // namespace trainyard::scenario

// Tables of values that other rooms own stand in the rooms' namespaces, where the reader of fields
// looks for them.
namespace trainyard {
void visit_fields(json::Fields& f, StepTime& s);
}  // namespace trainyard
namespace trainyard::topologies {
void visit_fields(json::Fields& f, NvlinkPair& s);
void visit_fields(json::Fields& f, ClosLevel& s);
void visit_fields(json::Fields& f, GpuSpec& s);
void visit_fields(json::Fields& f, ServerSpec& s);
void visit_fields(json::Fields& f, FabricSpec& s);
}  // namespace trainyard::topologies

namespace trainyard::recipe {
void visit_fields(json::Fields& f, Precision& s);
void visit_fields(json::Fields& f, CollectiveCall& s);
void visit_fields(json::Fields& f, MemoryAllowance& s);
void visit_fields(json::Fields& f, OffloadOptions& s);
void visit_fields(json::Fields& f, InputPipeline& s);
void visit_fields(json::Fields& f, Pipeline& s);
void visit_fields(json::Fields& f, StageLayers& s);
void visit_fields(json::Fields& f, Branches& s);
void visit_fields(json::Fields& f, GradientCompression& s);
void visit_fields(json::Fields& f, DataParallelOptions& s);
}  // namespace trainyard::recipe

namespace trainyard::models {
void visit_fields(json::Fields& f, MicroBatch& s);
void visit_fields(json::Fields& f, TensorParallel& s);
void visit_fields(json::Fields& f, ContextParallel& s);
void visit_fields(json::Fields& f, KernelChoice& s);
}  // namespace trainyard::models
