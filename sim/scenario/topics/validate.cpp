// What no single field can know: names, what models say of the execution, and each topic's checks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "models/families/network.h"
#include "models/transformer/networks.h"
#include "sim/base/text.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"
#include "topologies/cluster_check.h"

namespace trainyard::scenario {

namespace {

constexpr std::size_t kLongestName = 256;

bool is_plain_name(const std::string& name) {
  if (name.empty()) return false;
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return name[0] != '.' && name[0] != '-' && std::all_of(name.begin(), name.end(), plain);
}

void check_names(const ScenarioSections& sections, Findings& findings) {
  const std::string& name = sections.name;
  if (name.empty()) findings.error("/name", "the name is empty");
  if (name.size() > kLongestName)
    findings.error("/name", fmt::format("the name has {} bytes, at most {} are taken", name.size(),
                                        kLongestName));
  const std::vector<VariantSection>& variants = sections.variants;
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::string pointer = fmt::format("/variants/{}/name", i);
    const std::string& variant = variants[i].name;
    if (!is_plain_name(variant) || variant.size() > kLongestName)
      findings.error(pointer, "expected a short name of letters, digits, '_', '.', '-'",
                     "write the words in \"label\"");
    if (!names.insert(variant).second)
      findings.error(pointer, fmt::format("two variants are named \"{}\"", variant));
  }
  const std::string& baseline = sections.baseline;
  if (baseline.empty()) return;
  std::vector<std::string_view> known;
  for (const VariantSection& variant : variants)
    known.push_back(variant.name);
  if (std::find(known.begin(), known.end(), baseline) != known.end()) return;
  const auto near = find_nearest(baseline, known);
  findings.error("/baseline", fmt::format("no variant is named \"{}\"", baseline),
                 near ? fmt::format("did you mean \"{}\"?", *near) : "");
}

void check_execution_of_network(const Scenario& scenario, Findings& findings) {
  const models::Execution planned = plan::execution(scenario.recipe, scenario.plan);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kPointers = {
      {{"", "/model"},
       {"tensor_chunks", "/parallelism/tensor_parallel/chunks"},
       {"tensor", "/parallelism/tp"},
       {"context", "/parallelism/cp"},
       {"context_method", "/parallelism/context_parallel/method"},
       {"expert", "/parallelism/ep"},
       {"expert_tensor", "/parallelism/etp"},
       {"fused_attention", "/training/fused_attention"},
       {"fusion", "/training/execution"},
       {"autocast", "/training/precision/parameters"},
       {"sequence_length", "/training/sequence_length"},
       {"decoder_sequence_length", "/training/decoder_sequence_length"},
       {"predictions", "/training/predictions_per_sequence"},
       {"sequence_parallel", "/parallelism/sequence_parallel"},
       {"micro_batch", "/training/micro_batch"},
       {"recompute", "/training/recompute"},
       {"rank", "/training/finetune/rank"},
       {"targets", "/training/finetune/targets"},
       {"trains", "/training/finetune/trains"},
       {"last_layers", "/training/finetune/last_layers"},
       {"base", "/training/finetune/base"}}};
  for (const models::ExecutionProblem& problem : check_execution(scenario.network, planned)) {
    std::string_view pointer = "/model";
    for (const auto& [member, at] : kPointers) {
      if (member == problem.member) pointer = at;
    }
    findings.error(std::string(pointer), problem.message);
  }
}

}  // namespace

void check_cluster(const topologies::ClusterSpec& cluster, Findings& findings) {
  for (Diagnostic& diagnostic : check(cluster))
    findings.found.push_back(std::move(diagnostic));
}

void validate(const Scenario& scenario, const ScenarioSections& sections, Findings& findings) {
  check_names(sections, findings);
  if (scenario.shared == nullptr) check_cluster(scenario.cluster, findings);
  check_execution_of_network(scenario, findings);
  validate_batch(scenario, findings);
  validate_pipeline(scenario, findings);
  validate_branches(scenario, findings);
  validate_tensor_parallel(scenario, findings);
  validate_compute(scenario, findings);
  validate_machine(scenario, findings);
  validate_precision(scenario, findings);
  validate_data_parallel(scenario, findings);
  validate_recompute(scenario, findings);
  validate_finetune(scenario, findings);
  validate_offload(scenario, findings);
  validate_input(scenario, findings);
  // Sizes that were refused above need not fit 64 bits, and what is counted here does.
  if (!findings.has_errors()) validate_work(scenario, findings);
  if (!findings.has_errors()) validate_memory(scenario, findings);
}

}  // namespace trainyard::scenario
