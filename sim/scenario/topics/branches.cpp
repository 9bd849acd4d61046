// /parallelism/pipeline/branches: its table, and whether the network, the schedule and the rest of
// the plan allow it.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/layers/layer_table.h"
#include "sim/plan/branches/branch_placement.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/stage_orders.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::recipe {

namespace {

constexpr std::array<json::Choice<BranchPlacement>, 3> kPlaced = {
    {{"by_time", BranchPlacement::by_time},
     {"by_memory", BranchPlacement::by_memory},
     {"given", BranchPlacement::given}}};

}  // namespace

void visit_fields(json::Fields& f, StageLayers& s) {
  f.list("layers", s.layers, json::required, json::anything,
         "Names; in them * stands for any text.");
}

void visit_fields(json::Fields& f, Branches& s) {
  f.choice("placed", s.placed, kPlaced, json::optional,
           "By the predicted time of the step, by the memory of the fullest stage, or given.");
  f.sections("stages", s.stages, json::optional, "Of given: one for each stage.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

namespace {

using recipe::BranchPlacement;
using schedule::Pass;
using schedule::Slot;

constexpr const char* kPointer = "/parallelism/pipeline/branches";

// All stages take all micro-batches in one order, each with a whole forward and backward pass, so
// that no two wait for each other.
bool in_one_order(const Scenario& scenario) {
  const recipe::ParallelPlan& plan = scenario.plan;
  const schedule::PipelineShape shape = plan::pipeline_shape(scenario.recipe, plan);
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(plan.pipeline.schedule);
  if (directions(shape) > 1 || shape.chunks > 1) return false;
  if (schedule != nullptr &&
      (!schedule->times_from.empty() || schedule->updates != schedule::Updates::after_all))
    return false;
  const auto known = recipe::stage_orders(plan, shape);
  const schedule::StageOrders& orders = *known;
  const auto is_whole = [](const Slot& slot) {
    return !slot.paired && (slot.pass == Pass::forward || slot.pass == Pass::backward);
  };
  return std::all_of(orders.begin(), orders.end(), [&](const std::vector<Slot>& order) {
    return order == orders.front() && std::all_of(order.begin(), order.end(), is_whole);
  });
}

void check_given(const Scenario& scenario, Findings& findings) {
  const recipe::Branches& branches = *scenario.plan.pipeline.branches;
  const std::string stages = std::string(kPointer) + "/stages";
  const bool given = branches.placed == BranchPlacement::given;
  if (!given) {
    if (!branches.stages.empty())
      findings.error(stages, "layers are placed by the simulator",
                     "remove it, or set placed to \"given\"");
    return;
  }
  const int pp = scenario.plan.degrees.pipeline;
  if (static_cast<int>(branches.stages.size()) != pp) {
    findings.error(stages,
                   fmt::format("{} stages are listed, pp is {}", branches.stages.size(), pp));
    return;
  }
  std::vector<plan::PlacementProblem> problems;
  plan::given_stages(scenario.network.as<models::LayerNetwork>().layers, branches, problems);
  for (const plan::PlacementProblem& problem : problems) {
    std::string at = stages;
    if (problem.stage >= 0) at += fmt::format("/{}/layers", problem.stage);
    if (problem.entry >= 0) at += fmt::format("/{}", problem.entry);
    findings.error(at, problem.message, problem.hint);
  }
}

}  // namespace

void validate_branches(const Scenario& scenario, Findings& findings) {
  const recipe::Pipeline& pipeline = scenario.plan.pipeline;
  if (!pipeline.branches) return;
  if (!scenario.network.is<models::LayerNetwork>()) {
    findings.error(kPointer,
                   fmt::format("the layers of {} follow each other", scenario.network.words()),
                   "a network of kind \"layers\" has branches (docs/layers.md)");
    return;
  }
  const auto layers = scenario.network.chain().places;
  if (scenario.plan.degrees.pipeline == 1)
    findings.error(kPointer, "pp is 1: there is one stage to place them on",
                   "set pp, or remove it");
  else if (layers < scenario.plan.degrees.pipeline)
    findings.error("/parallelism/pp", fmt::format("{} layers are too few for {} stages", layers,
                                                  scenario.plan.degrees.pipeline));
  if (pipeline.layer_split != recipe::LayerSplit::uniform)
    findings.error("/parallelism/pipeline/layer_split",
                   "branches are placed, and the order of layers is not cut", "remove one of them");
  if (scenario.recipe.input)
    findings.error("/training/input_pipeline",
                   "with branches every stage may read the input: there are "
                   "no loaders for that",
                   "remove it");
  if (microbatches_per_step(scenario) > 0 && !findings.has_errors() && !in_one_order(scenario))
    findings.error("/parallelism/pipeline/schedule",
                   fmt::format("with branches all stages take the micro-batches in one order, and "
                               "under {} they do not",
                               pipeline.schedule),
                   "set it to gpipe or sequential");
  if (!findings.has_errors()) check_given(scenario, findings);
}

}  // namespace trainyard::scenario
