// /training/recompute: as written, as simulated, and whether it makes sense.
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/split/stage_split.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::scenario {

using models::Recompute;
using models::RecomputeModule;

namespace {

using json::Choice;
using Method = models::RecomputeLayers::Method;

constexpr const char* kPointer = "/training/recompute";
constexpr double kMostCounted = 1e6;

constexpr std::array<Recompute, 4> kForms = {Recompute::none, Recompute::selective, Recompute::full,
                                             Recompute::operators};
constexpr std::array<Choice<RecomputeModule>, 7> kModuleNames = {
    {{"core_attn", RecomputeModule::core_attn},
     {"mlp", RecomputeModule::mlp},
     {"moe", RecomputeModule::moe},
     {"moe_act", RecomputeModule::moe_act},
     {"shared_experts", RecomputeModule::shared_experts},
     {"layernorm", RecomputeModule::layernorm},
     {"mla_up_proj", RecomputeModule::mla_up_proj}}};
constexpr std::array<Choice<Method>, 3> kMethods = {
    {{"block", Method::block}, {"uniform", Method::uniform}, {"every", Method::every}}};

// Layers of the largest virtual stage that a split counts.
int most_layers(const models::NetworkWork& work, const std::vector<plan::ChainRange>& ranges) {
  int most = 0;
  for (const plan::ChainRange& range : ranges) {
    const auto first = work.divisible.begin();
    most =
        std::max(most, static_cast<int>(std::count(first + range.first, first + range.last, true)));
  }
  return most;
}

}  // namespace

void visit_fields(json::Fields& f, RecomputeSection& s) {
  f.choice("modules", s.modules, kModuleNames, json::optional,
           "Parts of a layer that run again, by Megatron-LM's names. Without: whole layers.");
  f.choice("method", s.method, kMethods,
           "Which layers of each virtual stage: block (the first ones), every (each n-th), or "
           "uniform (all, n together, of which only the first one's input is kept).");
  f.field("layers", s.layers, json::between(1, kMostCounted), "Of the method.");
}

void assemble_recompute(recipe::TrainingRecipe& recipe, const TrainingSection& section,
                        Findings& findings) {
  for (const Recompute form : kForms)
    if (name(form) == section.recompute) recipe.recompute.form = form;
  if (!section.recompute.empty()) return;
  const RecomputeSection& parts = section.recompute_parts;
  recipe.recompute.form = parts.modules.empty() ? Recompute::full : Recompute::modules;
  for (const RecomputeModule module : parts.modules) {
    if (recipe.recompute.modules.has(module))
      findings.error(fmt::format("{}/modules", kPointer),
                     fmt::format("{} stands there twice", name(module)));
    recipe.recompute.modules.add(module);
  }
  if (parts.modules.empty() && !parts.method && !parts.layers)
    findings.error(kPointer, "names neither modules nor layers",
                   "\"full\" recomputes all of every layer");
  if (parts.method.has_value() != parts.layers.has_value())
    findings.error(kPointer, "a method and its number of layers belong together",
                   "{\"method\": \"block\", \"layers\": 4}");
  if (parts.method && parts.layers) recipe.recompute.layers = {*parts.method, *parts.layers};
}

void check_early_stop(const Scenario& scenario, Findings& findings) {
  const models::Recomputation& chosen = scenario.recipe.recompute;
  if (!chosen.stops_early) return;
  const char* pointer = "/training/recompute_stops_early";
  if (chosen.form != Recompute::full)
    findings.error(
        pointer,
        fmt::format("recompute is {}, and only whole layers that run again may stop early",
                    name(chosen.form)),
        "set recompute to \"full\" or to layers of a method, or remove it");
  else if (chosen.layers.method == Method::uniform && chosen.layers.layers > 1)
    findings.error(pointer, "in a group, the next layer reads what this one would leave out",
                   "groups of 1 layer, or remove it");
  else if (scenario.network.stack() == nullptr)
    findings.error(pointer, "it is described for layers of transformers", "remove it");
}

namespace {

void check_micro_batches(const Scenario& scenario, Findings& findings) {
  const models::Recomputation& chosen = scenario.recipe.recompute;
  const bool none = chosen.form == Recompute::none;
  const char* last = "/training/recompute_micro_batches";
  const char* ahead = "/training/recompute_ahead";
  if (chosen.ahead && (none || scenario.plan.degrees.pipeline == 1))
    findings.error(ahead, none ? "nothing runs again" : "pp is 1: no stage waits for gradients",
                   "remove it");
  if (!chosen.except_last) return;
  if (none)
    findings.error(last, "nothing runs again", "remove it, or state /training/recompute");
  else if (scenario.recipe.offload.activations)
    findings.error(last, "activations of all micro-batches go to the host alike", "remove it");
  else if (scenario.plan.data_parallel.kind == "nn_data_parallel")
    findings.error(last, "torch.nn.DataParallel has one micro-batch", "remove it");
  else if (microbatches_per_step(scenario) == 1)
    findings.warning(last, "there is one micro-batch, the last: nothing runs again",
                     "remove it, or /training/recompute");
}

}  // namespace

void validate_recompute(const Scenario& scenario, Findings& findings) {
  check_early_stop(scenario, findings);
  check_micro_batches(scenario, findings);
  const models::RecomputeLayers& layers = scenario.recipe.recompute.layers;
  if (layers.method == Method::all || findings.has_errors()) return;
  const std::string pointer = std::string(kPointer) + "/layers";
  if (layers.method == Method::uniform && layers.layers > 1) {
    if (scenario.recipe.recompute.form == Recompute::modules)
      findings.error(pointer, "groups of layers run again as a whole, not module by module",
                     "drop \"modules\", or take method block or every");
    if (plan::strategy_of(scenario.plan, scenario.recipe).gathering == plan::Gathering::each_pass)
      findings.error(pointer,
                     "a group of layers that runs again would need the gathered parameters of all "
                     "of them at once",
                     "1 layer, or method block or every");
  }
  const models::NetworkWork work =
      network_work(scenario.network, plan::execution(scenario.recipe, scenario.plan));
  // Times of layers, which could deal nearly all to one stage, are not known here.
  const recipe::Pipeline& pipeline = scenario.plan.pipeline;
  if (pipeline.layer_split == recipe::LayerSplit::by_time) return;
  const int most =
      pipeline.branches
          ? static_cast<int>(divisible_layers(scenario.network))
          : most_layers(
                work, plan::split_layers(work, plan::pipeline_shape(scenario.recipe, scenario.plan),
                                         scenario.recipe, scenario.plan));
  if (layers.layers > most)
    findings.error(
        pointer,
        fmt::format("{} layers, but no virtual stage has more than {}", layers.layers, most),
        "block and uniform: at most that many; \"full\" is all of them");
}

}  // namespace trainyard::scenario
