#include "sim/scenario/topics/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/scenario/sources.h"

namespace trainyard::scenario {

using recipe::Optimizer;
using recipe::Straggler;
using recipe::TrainingRecipe;

namespace {

TrainingRecipe assemble_recipe(const TrainingSection& section, const models::Network& network,
                               Findings& findings) {
  TrainingRecipe recipe;
  const bool is_recommender = std::holds_alternative<models::Recommender>(network);
  const std::string family = is_recommender ? "a recommender" : "a convolutional network";
  const bool is_language = reads_tokens(network);
  const bool has_attention = stack_of(network) != nullptr;
  recipe.global_batch = section.global_batch;
  recipe.micro_batch = assemble_batch(section.micro_batch, network, findings);
  recipe.precision = assemble_precision(section.precision);
  const OptimizerSection& optimizer = section.optimizer;
  if (optimizer.momentum && optimizer.type != Optimizer::sgd)
    findings.error("/training/optimizer/momentum", "only sgd has a momentum of its own",
                   "remove it");
  recipe.optimizer = optimizer.type == Optimizer::sgd && optimizer.momentum
                         ? Optimizer::sgd_momentum
                         : optimizer.type;
  assemble_recompute(recipe, section, findings);
  recipe.gradient_clipping = section.gradient_clipping;
  recipe.offload = section.offload;
  recipe.kernels = section.kernels;
  const models::KernelChoice& kernels = section.kernels;
  if (kernels.loss && kernels.fusion == models::Fusion::by_hand)
    findings.error("/training/loss", "of an execution that is \"fused\", the loss is too",
                   "remove it, or make the execution \"eager\" or \"compiled\"");
  if (kernels.loss && !is_language)
    findings.error("/training/loss", "only losses over a vocabulary have a choice of it",
                   "remove it");
  recipe.launch_time = section.launch_time;
  if (!has_attention && kernels.fusion == models::Fusion::compiled)
    findings.error("/training/execution",
                   fmt::format("what torch.compile makes of {} is not described", family),
                   "\"eager\" is");
  if (!has_attention && kernels.fused_attention)
    findings.error("/training/fused_attention", fmt::format("{} has no attention", family),
                   "remove it");
  return recipe;
}

std::string find_profile(const ClusterSection& section, const json::Value& document,
                         const std::string& configs, Findings& findings) {
  const std::string& wanted = section.calibration;
  if (wanted == "none") return {};
  if (wanted.empty()) {
    const std::string path = preset_path(configs, "profiles", section.spec.server.gpu.name);
    return !section.spec.server.gpu.name.empty() && is_file(path) ? path : "";
  }
  if (wanted.find('/') == std::string::npos) {
    const std::string path = preset_path(configs, "profiles", wanted);
    if (is_file(path)) return path;
  }
  namespace fs = std::filesystem;
  const json::Value* value = json::find(document, "/cluster/calibration");
  const std::string writer = value != nullptr ? value->at.position().file : "";
  const fs::path folder = is_file(writer) ? fs::path(writer).parent_path() : fs::path();
  const std::string path = (folder / wanted).lexically_normal().string();
  if (is_file(path)) return path;
  const std::vector<std::string> known = preset_names(configs, "profiles");
  std::string hint;
  const std::vector<std::string_view> views(known.begin(), known.end());
  for (const std::string_view near : nearest(wanted, views, 3))
    hint += fmt::format("{}{}", hint.empty() ? "nearest: " : ", ", near);
  if (wanted.find('/') != std::string::npos || wanted.ends_with(".json"))
    hint = fmt::format(
        "{} is no file; a path begins at the folder of the file that names it, with --set at the "
        "working folder",
        path);
  findings.error("/cluster/calibration", fmt::format("no profile \"{}\"", wanted), hint);
  return {};
}

void assemble_stragglers(Scenario& scenario, const PerturbationsSection& section,
                         Findings& findings) {
  const int per_server = scenario.cluster.server.gpus;
  const int ranks = scenario.plan.degrees.world_size();
  for (std::size_t i = 0; i < section.stragglers.size(); ++i) {
    const StragglerSection& straggler = section.stragglers[i];
    const std::string pointer = fmt::format("/perturbations/stragglers/{}/select", i);
    const StragglerSelect& select = straggler.select;
    if (select.rank.has_value() == select.node.has_value()) {
      findings.error(pointer, "expected exactly one of rank and node");
      continue;
    }
    if (select.rank && *select.rank >= ranks) {
      findings.error(pointer + "/rank",
                     fmt::format("rank {} of {} (0 to {})", *select.rank, ranks, ranks - 1));
      continue;
    }
    if (select.node && *select.node >= scenario.cluster.servers) {
      findings.error(pointer + "/node",
                     fmt::format("server {} of {} (0 to {})", *select.node,
                                 scenario.cluster.servers, scenario.cluster.servers - 1));
      continue;
    }
    const int first = select.rank ? *select.rank : *select.node * per_server;
    const int count = select.rank ? 1 : per_server;
    for (int rank = first; rank < first + count && rank < ranks; ++rank) {
      const bool twice = std::any_of(scenario.stragglers.begin(), scenario.stragglers.end(),
                                     [&](const Straggler& other) { return other.rank == rank; });
      if (twice) {
        findings.error(pointer, fmt::format("rank {} is slowed twice", rank));
        break;
      }
      scenario.stragglers.push_back({rank, straggler.compute_slowdown});
    }
  }
  std::sort(scenario.stragglers.begin(), scenario.stragglers.end(),
            [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
}

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

Scenario assemble(const ScenarioSections& sections, const json::Value& document,
                  const std::string& configs, Findings& findings) {
  Scenario scenario;
  scenario.name = sections.name;
  scenario.label = sections.label.empty() ? sections.name : sections.label;
  scenario.description = sections.description;
  scenario.network_name = network_name(document);
  scenario.network = assemble_network(sections.model, scenario.network_name, findings);
  scenario.cluster = sections.cluster.spec;
  scenario.recipe = assemble_recipe(sections.training, scenario.network, findings);
  scenario.recipe.memory = assemble_memory(sections.training.memory, scenario.cluster.server.gpu);
  scenario.plan = sections.parallelism.plan;
  scenario.plan.pipeline = assemble_pipeline(scenario.plan.pipeline);
  scenario.plan.data_parallel =
      assemble_data_parallel(scenario.plan.data_parallel, scenario.plan.degrees.pipeline > 1);
  assemble_degrees(scenario, sections.parallelism, findings);
  scenario.seed = sections.simulation.seed;
  assemble_experts(scenario, sections.parallelism.expert_parallel, findings);
  assemble_tables(scenario, sections, findings);
  scenario.profile = find_profile(sections.cluster, document, configs, findings);
  scenario.profile_of_other_gpu = sections.cluster.calibration_of_other_gpu;
  assemble_stragglers(scenario, sections.perturbations, findings);
  scenario.fidelity = sections.simulation.fidelity;
  scenario.exploit_symmetry = sections.simulation.exploit_symmetry;
  scenario.tokens = sections.training.tokens;
  for (const ReferenceSection& reference : sections.references)
    scenario.references.push_back({reference.label, reference.metric, reference.value.value_or(0)});
  scenario.output_directory = sections.outputs.directory;
  scenario.document = document;
  return scenario;
}

}  // namespace trainyard::scenario
