// Sections as written -> Scenario as simulated.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

// Collects what is wrong across fields; the reader of the file adds the positions.
struct Findings {
  std::vector<Diagnostic> found;
  void error(std::string pointer, std::string message, std::string hint = {});
  void warning(std::string pointer, std::string message, std::string hint = {});
  bool has_errors() const;
};

// What /model and /cluster say, which most changes of a scenario leave alone.
struct NetworkAndMachine {
  models::Network network;
  std::string network_name;  // preset or file; may be empty
  Machine machine;
  bool profile_of_other_gpu = false;
};
NetworkAndMachine assemble_network_and_machine(const ScenarioSections& sections,
                                               const json::Value& document, const Places& places,
                                               Findings& findings);

// Fills defaults that depend on other fields and derives what is not said (dp, the profile).
// `document` is the tree that the sections were read from, and becomes the scenario's. `known`: in
// place of what these two sections say; null: they are read.
Scenario assemble(const ScenarioSections& sections, json::Value document, const Places& places,
                  Findings& findings, std::shared_ptr<const NetworkAndMachine> known = nullptr);

// What topologies::check() says.
void check_cluster(const topologies::ClusterSpec& cluster, Findings& findings);

// Checks what no single field can know, of the cluster unless that is shared, and so was checked.
// Requires: sections that were read without an error.
void validate(const Scenario& scenario, const ScenarioSections& sections, Findings& findings);

// What follows are the parts of both, topic by topic: what assemble() takes from a topic's section,
// and what validate() then finds in it.

// What the job takes to be simulated.
void validate_work(const Scenario& scenario, Findings& findings);

// /cluster, also of a document that has nothing else.
Machine assemble_machine(const ClusterSection& section, const json::Value& document,
                         const Places& places, Findings& findings);

// Tables. Requires: network and degrees are set.
void assemble_tables(Scenario& scenario, const ScenarioSections& sections, Findings& findings);

// /cluster: with all servers counted, and one number of GPUs in use for each.
topologies::ClusterSpec assemble_cluster(topologies::ClusterSpec cluster, Findings& findings);

// /cluster: by kind of GPUs the profile that it names, which is the first's, or that the GPU or one
// with the same numbers has; "none" and "kind" hold for all.
std::vector<ProfileChoice> find_profiles(const ClusterSection& section, const json::Value& document,
                                         const Places& places, Findings& findings);
// Magnitudes that no machine has.
void validate_machine(const Scenario& scenario, Findings& findings);

// Of a kind of servers: "/cluster/node", "/cluster/other_nodes/0/node".
std::string node_pointer(int kind);

// An error at `key` of each kind of server's host where it is not given; `what`: for which it is
// needed.
using OfServer = std::function<bool(const topologies::ServerSpec&)>;
void require_of_hosts(const topologies::ClusterSpec& cluster, const char* key,
                      const OfServer& is_given, const char* what, Findings& findings);
bool states_pcie_bandwidth(const topologies::ServerSpec& server);
bool states_memory_bandwidth(const topologies::ServerSpec& server);

// /training as a whole, with its parts below.
recipe::TrainingRecipe assemble_recipe(const TrainingSection& section,
                                       const models::Network& network,
                                       const topologies::GpuSpec& gpu, Findings& findings);

// Errors where the network or the execution has no such kernels.
void check_kernels(const recipe::TrainingRecipe& recipe, const models::Network& network,
                   Findings& findings);

// The kernel that is meant, with the one that frameworks take for `usual`; an error if the GPU
// cannot run it. Source: docs/cost-attention.md.
models::AttentionKernel assemble_attention(models::AttentionKernel kernel,
                                           const topologies::GpuSpec& gpu, Findings& findings);

// Batches, and the lengths of sequences, which only some networks have.
models::MicroBatch assemble_batch(models::MicroBatch batch, const models::Network& network,
                                  Findings& findings);
void validate_batch(const Scenario& scenario, Findings& findings);

void validate_batch_split(const Scenario& scenario, Findings& findings);

// The micro-batch that no file says. Requires: network, batch and degrees are set.
void assume_micro_batch(Scenario& scenario);

// What `document` leaves out of servers, micro-batch, number format and optimizer, as the scenario
// has it. Requires: everything else is assembled.
std::vector<Assumption> assumptions(const Scenario& scenario, const json::Value& document);

// 0: the batch does not divide, or into too many.
std::int64_t microbatches_per_step(const Scenario& scenario);

// /training/precision: against each other and the optimizer, and units that the GPU lacks.
recipe::Precision assemble_precision(recipe::Precision precision, const topologies::GpuSpec& gpu);
void validate_precision(const Scenario& scenario, Findings& findings);
void validate_compute(const Scenario& scenario, Findings& findings);

// /training/recompute
void assemble_recompute(recipe::TrainingRecipe& recipe, const TrainingSection& section,
                        Findings& findings);
void validate_recompute(const Scenario& scenario, Findings& findings);

// /training/finetune: as simulated, and whether the network has what it names. Requires: recipe and
// plan of `scenario` are set.
models::Finetune assemble_finetune(const FinetuneSection& section, Findings& findings);
void validate_finetune(const Scenario& scenario, Findings& findings);

// /collectives
collective::Choices assemble_collectives(const CollectivesSection& section, Findings& findings);

// /training/memory
recipe::MemoryAllowance assemble_memory(recipe::MemoryAllowance memory,
                                        const topologies::GpuSpec& gpu);
void validate_memory(const Scenario& scenario, Findings& findings);

// /training/tokens, samples, epochs and dataset_size, and /cost. Requires: network and batch.
recipe::TrainingLength assemble_length(const ScenarioSections& sections, const Scenario& scenario,
                                       Findings& findings);

// /training/offload
void validate_offload(const Scenario& scenario, Findings& findings);

// /training/input_pipeline: what the cluster says of it. Requires: network, cluster and degrees are
// set.
void assemble_input(Scenario& scenario, Findings& findings);
void validate_input(const Scenario& scenario, Findings& findings);

// Degrees: without dp, it is what the others leave. Requires: network, cluster and recipe are set.
void assemble_degrees(Scenario& scenario, const ParallelismSection& section, Findings& findings);

// Tensor and context parallelism.
void validate_tensor_parallel(const Scenario& scenario, Findings& findings);

// /parallelism/pipeline
recipe::Pipeline assemble_pipeline(recipe::Pipeline pipeline, int stages);
void validate_pipeline(const Scenario& scenario, Findings& findings);
void validate_branches(const Scenario& scenario, Findings& findings);

// /parallelism/data_parallel; `pipeline`: there is one.
recipe::DataParallelOptions assemble_data_parallel(recipe::DataParallelOptions options,
                                                   bool pipeline);
void validate_data_parallel(const Scenario& scenario, Findings& findings);
// Of kind nn_data_parallel.
void validate_one_process(const Scenario& scenario, Findings& findings);
void validate_parameter_server(const Scenario& scenario, Findings& findings);

// Experts. Requires: network, degrees and seed are set.
void assemble_experts(Scenario& scenario, const ExpertParallelSection& section, Findings& findings);

// /search: what it varies and looks for. Requires: everything else is assembled.
SearchSpec assemble_search(const SearchSection& section, const Scenario& scenario,
                           Findings& findings);

// Slow ranks. Requires: cluster and degrees are set.
void assemble_stragglers(Scenario& scenario, const PerturbationsSection& section,
                         Findings& findings);

}  // namespace trainyard::scenario
