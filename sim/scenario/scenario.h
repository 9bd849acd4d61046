// A scenario: one training job on one machine, as a file describes it, read completely or refused
// with every mistake found.
//
// file -> extends -> --set -> variant -> presets -> fields -> checks. Each step keeps the place at
// which a value was written, so that every message and `explain` can name file, line and column.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/network.h"
#include "sim/base/diagnostic.h"
#include "sim/collective/algorithm.h"
#include "sim/json/schema.h"
#include "sim/json/value.h"
#include "sim/recipe/recipe.h"
#include "sim/scenario/assumption.h"
#include "sim/scenario/search_spec.h"
#include "topologies/cluster.h"

namespace trainyard::scenario {

// A published number to compare with, shown beside the prediction.
struct Reference {
  std::string label;
  std::string metric;  // "model_tflops_per_gpu", "mfu", "step_time"; may be empty
  double value = 0;
};

// By whose measurements the GPUs of a cluster are priced.
struct ProfileChoice {
  std::string path;      // of a profile; empty: none
  bool of_kind = false;  // without one: medians of fitted GPUs of its kind (gpu_origin.h)
};

struct OtherJob;
struct NetworkAndMachine;

struct Scenario {
  std::string name, label, description;  // a variant's label replaces the base's
  std::string variant;                   // empty for the base
  std::string file;                      // the scenario's path as given
  std::string root;                      // LoadOptions::root
  std::string configs;                   // the folder that holds its presets (configs_folder)

  models::Network network;
  std::string network_name;  // preset or file; may be empty
  topologies::ClusterSpec cluster;
  std::vector<ProfileChoice> profiles;  // by topologies::gpu_kinds
  bool profile_of_other_gpu = false;    // a profile of another GPU is accepted, as extrapolated
  recipe::TrainingRecipe recipe;
  recipe::ParallelPlan plan;
  std::vector<recipe::Straggler> stragglers;  // one per slow rank, by rank
  double compute_jitter = 0;  // standard deviation between GPUs, in parts of a kernel's time
  collective::Choices collectives;
  recipe::Fidelity fidelity = recipe::Fidelity::closed_form;
  std::uint64_t seed = 0;
  bool exploit_symmetry = true;
  bool exploit_periodicity = true;
  recipe::TrainingLength length;
  std::vector<OtherJob> other_jobs;  // on other GPUs of the cluster
  std::vector<Reference> references;
  std::string output_directory;  // empty: not said

  // Where network, cluster and profiles are from: scenarios that have the same one have the same.
  // Null: it is not known of which others.
  std::shared_ptr<const NetworkAndMachine> shared{};

  json::Value document;  // resolved: extends, --set, variant and presets applied
  std::vector<Assumption> assumed;
  std::string software;            // that the scenario names; may be empty
  std::vector<Assumption> habits;  // of it, where the scenario says nothing
  std::vector<Diagnostic> warnings;

  // It is a change of the other: its file, and what that may name.
  void take_place_of(const Scenario& other) {
    file = other.file;
    root = other.root;
    configs = other.configs;
  }
};

// A scenario as if its job were alone; its cluster is the same but for gpus_used.
struct OtherJob {
  std::string name;
  Scenario scenario;
};

struct ScenarioSet {
  Scenario base;
  std::vector<Scenario> variants;    // in file order; empty if the file has none
  std::string baseline;              // a variant's name; empty: the first
  std::vector<std::string> names;    // of all variants of the file, wanted or not
  std::optional<SearchSpec> search;  // empty: the file has none
  json::Value written;               // without variants and search; presets are names
};

// Reads and checks a scenario and each of its variants; `sets` are "KEY=VALUE" with dotted or
// /pointer keys and JSON or plain text. Throws ScenarioError with all mistakes, in file order, at
// most kMostDiagnostics.
struct LoadOptions {
  // Only this variant is read and judged, or, if empty, only the scenario without any. Not said:
  // all.
  std::optional<std::string> variant{};
  std::string root{};  // a folder whose files may be read besides those of the scenario's own root
};
ScenarioSet load_scenario(const std::string& path, const std::vector<std::string>& sets = {},
                          const LoadOptions& options = {});
inline constexpr std::size_t kMostDiagnostics = 20;

// The scenario of a document that no file holds, or that is a part of one: presets are looked for
// from that file, or from the working folder. Throws as load_scenario does. Variants are not read.
// Requires: an object.
Scenario scenario_of(json::Value document, const LoadOptions& options = {});

// The network of such a document, whatever else is in it. Throws the same.
models::Network network_of(json::Value document, const LoadOptions& options = {});

// The scenario with a merge patch (RFC 7396) on its document, read and checked as a file is;
// nothing if it is wrong then. Variants are not in it. Requires: a scenario that load_scenario
// accepted.
std::optional<Scenario> with_patch(const Scenario& scenario, const json::Value& patch);

// JSON Schema (draft-07) of scenario files, written from the tables that read them.
std::string schema_json();

// The field that chooses the algorithm of a kind, "/collectives/allreduce/algorithm".
std::string algorithm_pointer(CollectiveKind kind);
std::string protocol_pointer(CollectiveKind kind);

// Every value of a scenario with its origin; derived ones (dp) as they were derived.
std::vector<json::Explained> explain(const Scenario& scenario);

struct Preset {
  std::string kind;  // "model", "gpu", "server", "cluster"
  std::string name;
  std::string path;
  std::string description;
};

// All presets of a configs folder, by kind and name.
std::vector<Preset> list_presets(const std::string& configs);

// A machine without a job.
struct Machine {
  topologies::ClusterSpec cluster;
  std::vector<ProfileChoice> profiles;  // by topologies::gpu_kinds
};

// Where a scenario says its kinds of GPUs, by topologies::gpu_kinds.
std::vector<std::string> gpu_pointers(const topologies::ClusterSpec& cluster);

// A cluster preset, or servers of a server preset behind one ideal switch. `servers`: how many of
// them; 0: as many as the cluster has, or one. Nothing if neither has the name. Throws
// ScenarioError if the preset is wrong.
std::optional<Machine> machine_of_preset(const std::string& configs, const std::string& name,
                                         int servers);

// The cluster of a scenario's file, or servers as a server preset's file describes them. Throws
// ScenarioError if the file is wrong.
Machine machine_of_file(const std::string& configs, const std::string& path, int servers);

// What is wrong with the text of a server preset, and what is implausible, as a scenario of one
// such server would say it; `file` is the name that diagnostics carry.
std::vector<Diagnostic> check_server_preset(const std::string& configs, std::string_view text,
                                            const std::string& file);

// A GPU preset of a configs folder, named as its file says, which may say nothing. Throws
// ScenarioError if there is none or it is wrong.
topologies::GpuSpec gpu_of_preset(const std::string& configs, const std::string& name);

// The GPU preset of a configs folder that lists this name of a device, as the driver says it
// ("NVIDIA H200"). Throws ScenarioError if that preset is wrong.
std::optional<topologies::GpuSpec> gpu_of_device(const std::string& configs,
                                                 const std::string& device_name);

// The folder that holds models/, gpus/, servers/, clusters/ and profiles/: $TRAINYARD_CONFIGS, else
// the nearest configs/ upwards from `from` (a file or a folder), else the one of the source tree.
// Empty: none.
std::string configs_folder(const std::string& from);

}  // namespace trainyard::scenario
