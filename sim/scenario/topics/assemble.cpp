#include "sim/scenario/topics/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/scenario/software.h"

namespace trainyard::scenario {

namespace {

std::string network_name(const json::Value& document) {
  for (const char* pointer : {"/model/preset", "/model/hf_config"}) {
    if (const json::Value* value = json::find(document, pointer)) return value->text;
  }
  return {};
}

}  // namespace

void Findings::error(std::string pointer, std::string message, std::string hint) {
  found.push_back({Severity::error, {}, std::move(pointer), std::move(message), std::move(hint)});
}

void Findings::warning(std::string pointer, std::string message, std::string hint) {
  found.push_back({Severity::warning, {}, std::move(pointer), std::move(message), std::move(hint)});
}

bool Findings::has_errors() const {
  return std::any_of(found.begin(), found.end(), [](const Diagnostic& diagnostic) {
    return diagnostic.severity == Severity::error;
  });
}

Machine assemble_machine(const ClusterSection& section, const json::Value& document,
                         const Places& places, Findings& findings) {
  return {assemble_cluster(section.spec, findings),
          find_profiles(section, document, places, findings)};
}

NetworkAndMachine assemble_network_and_machine(const ScenarioSections& sections,
                                               const json::Value& document, const Places& places,
                                               Findings& findings) {
  NetworkAndMachine found;
  found.network = assemble_network(sections.model, document, findings);
  found.network_name = network_name(document);
  found.machine = assemble_machine(sections.cluster, document, places, findings);
  found.profile_of_other_gpu = sections.cluster.calibration_of_other_gpu;
  return found;
}

Scenario assemble(const ScenarioSections& sections, json::Value document, const Places& places,
                  Findings& findings, std::shared_ptr<const NetworkAndMachine> known) {
  NetworkAndMachine read = known != nullptr
                               ? *known
                               : assemble_network_and_machine(sections, document, places, findings);
  Scenario scenario;
  scenario.shared = std::move(known);
  scenario.name = sections.name;
  scenario.label = sections.label.empty() ? sections.name : sections.label;
  scenario.description = sections.description;
  scenario.network_name = std::move(read.network_name);
  scenario.network = std::move(read.network);
  scenario.cluster = std::move(read.machine.cluster);
  scenario.profiles = std::move(read.machine.profiles);
  scenario.profile_of_other_gpu = read.profile_of_other_gpu;
  scenario.recipe =
      assemble_recipe(sections.training, scenario.network, oldest_gpu(scenario.cluster), findings);
  scenario.plan = sections.parallelism.plan;
  scenario.plan.pipeline =
      assemble_pipeline(scenario.plan.pipeline, scenario.plan.degrees.pipeline);
  scenario.plan.data_parallel =
      assemble_data_parallel(scenario.plan.data_parallel, scenario.plan.degrees.pipeline > 1);
  assemble_degrees(scenario, sections.parallelism, findings);
  assume_micro_batch(scenario);
  scenario.seed = sections.simulation.seed;
  assemble_experts(scenario, sections.parallelism.expert_parallel, findings);
  assemble_tables(scenario, sections, findings);
  assemble_input(scenario, findings);
  assemble_stragglers(scenario, sections.perturbations, findings);
  scenario.compute_jitter = sections.perturbations.compute_jitter.cv;
  scenario.collectives = assemble_collectives(sections.collectives, findings);
  scenario.fidelity = sections.simulation.fidelity;
  scenario.exploit_symmetry = sections.simulation.exploit_symmetry;
  scenario.exploit_periodicity = sections.simulation.exploit_periodicity;
  scenario.length = assemble_length(sections, scenario, findings);
  for (const ReferenceSection& reference : sections.references)
    scenario.references.push_back({reference.label, reference.metric, reference.value.value_or(0)});
  scenario.output_directory = sections.outputs.directory;
  scenario.assumed = assumptions(scenario, document);
  scenario.software = sections.software;
  scenario.habits = habits_in_force(document, places);
  scenario.document = std::move(document);
  return scenario;
}

}  // namespace trainyard::scenario
