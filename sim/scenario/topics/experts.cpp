// /parallelism/expert_parallel: its table, the grid of the experts and their load. Every field that
// would change nothing is an error.
#include <fmt/format.h>

#include <algorithm>

#include "models/transformer/networks.h"
#include "sim/base/random.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::scenario {

using recipe::Axis;

namespace {

constexpr std::array<json::Choice<bool>, 2> kDispatches = {
    {{"all_to_all", false}, {"hierarchical", true}}};
constexpr std::array<json::Choice<models::Dtype>, 2> kDispatchDtypes = {
    {{"bf16", models::Dtype::bf16}, {"fp8", models::Dtype::fp8}}};

// A number in [0, 1), a multiple of 2^-53.
double uniform(SplitMix64& random) {
  return static_cast<double>(random.next() >> 11) * 0x1p-53;
}

// Rows of each expert, from the file or drawn. Even draws need no more than + and *.
std::vector<double> expert_loads(const ExpertParallelSection& section, std::int64_t experts,
                                 std::uint64_t seed) {
  if (!section.load.empty() || section.imbalance == 0) return section.load;
  constexpr double kHalfWidth = 1.7320508075688772;  // of an even draw with deviation 1: sqrt 3
  SplitMix64 random(seed);
  std::vector<double> loads;
  for (std::int64_t e = 0; e < experts; ++e)
    loads.push_back(1 + section.imbalance * kHalfWidth * (2 * uniform(random) - 1));
  return loads;
}

// Ranks between neighbouring stages, in the dense grid and in that of the experts.
std::pair<std::int64_t, std::int64_t> ranks_before_stages(const recipe::ParallelPlan& plan) {
  std::int64_t dense = 1, routed = 1;
  for (const Axis axis : plan.rank_order) {
    if (axis == Axis::pipeline) break;
    dense *= plan.degrees.along(axis);
    routed *= axis == Axis::tensor    ? plan.experts.tensor.value()
              : axis == Axis::context ? plan.experts.ranks
                                      : plan.expert_replicas();
  }
  return {dense, routed};
}

// The expert-parallel degrees that would do.
std::string possible_degrees(std::int64_t replica, int expert_tensor, std::int64_t experts) {
  std::string text;
  for (std::int64_t ep = 1; ep <= std::min(replica, experts); ++ep) {
    if (replica % (ep * expert_tensor) == 0 && experts % ep == 0)
      text += fmt::format("{}{}", text.empty() ? "ep may be " : ", ", ep);
  }
  return text.empty() ? "choose an etp that divides them" : text;
}

void refuse_without_experts(const ExpertParallelSection& section, Findings& findings) {
  constexpr const char* kWhy = "the network has no experts to deal";
  const models::ExpertParallel& how = section.experts;
  if (how.ranks > 1) findings.error("/parallelism/ep", kWhy, "remove it");
  if (how.tensor.is_said()) findings.error("/parallelism/etp", kWhy, "remove it");
  if (how.capacity.is_said() || !section.load.empty() || section.imbalance > 0 ||
      how.hierarchical_dispatch || how.dispatch_dtype)
    findings.error("/parallelism/expert_parallel", kWhy, "remove it");
}

void refuse_what_would_be_ignored(const ExpertParallelSection& section, models::Dtype compute,
                                  Findings& findings) {
  const models::ExpertParallel& how = section.experts;
  if (!section.load.empty() && section.imbalance > 0)
    findings.error("/parallelism/expert_parallel/imbalance", "the load of each expert is given",
                   "keep one of them");
  if (how.capacity.is_said() && (!section.load.empty() || section.imbalance > 0))
    findings.error("/parallelism/expert_parallel/capacity_factor",
                   "experts of a given capacity compute all its rows, however they are called",
                   "leave it out, or the load");
  if (how.capacity.is_said() && how.hierarchical_dispatch)
    findings.error("/parallelism/expert_parallel/capacity_factor",
                   "experts of a given capacity take a row for each of their slots, so rows do not "
                   "share their way",
                   "leave it out, or set the dispatch to \"all_to_all\"");
  constexpr const char* kStay = "ep is 1: rows stay on their rank";
  if (how.ranks == 1 && how.hierarchical_dispatch)
    findings.error("/parallelism/expert_parallel/dispatch", kStay, "remove it, or raise ep");
  if (how.ranks == 1 && how.dispatch_dtype)
    findings.error("/parallelism/expert_parallel/dispatch_dtype", kStay, "remove it, or raise ep");
  else if (how.dispatch_dtype && compute != models::Dtype::fp8)
    findings.error("/parallelism/expert_parallel/dispatch_dtype",
                   fmt::format("rows travel as experts multiply them, in {}", name(compute)),
                   "remove it, or set precision.compute to \"fp8\"");
}

}  // namespace

void visit_fields(json::Fields& f, ExpertParallelSection& s) {
  f.field(
      "capacity_factor", s.experts.capacity, json::Bounds{0, 1024, true},
      "Rows an expert takes, in even shares; the rest are dropped. Default: no row is dropped.");
  f.list("load", s.load, json::optional, json::Bounds{0, 1e6, false},
         "Rows of each expert against the others, one number per expert.");
  f.field("imbalance", s.imbalance, json::optional, json::between(0, 0.57),
          "Standard deviation of the experts' load against its mean; drawn evenly by "
          "simulation.seed.");
  f.choice("dispatch", s.experts.hierarchical_dispatch, kDispatches, json::optional,
           "How rows travel: all_to_all (each by itself), hierarchical (once to each server, from "
           "there once to each rank; DeepEP).");
  f.choice("dispatch_dtype", s.experts.dispatch_dtype, kDispatchDtypes,
           "Type of rows on their way to experts of fp8 products. Default: bf16.");
}

void assemble_experts(Scenario& scenario, const ExpertParallelSection& section,
                      Findings& findings) {
  recipe::ParallelPlan& plan = scenario.plan;
  const auto* transformer = scenario.network.find<models::Transformer>();
  const std::int64_t experts = transformer != nullptr ? transformer->moe.experts : 0;
  if (experts == 0) {
    refuse_without_experts(section, findings);
    plan.experts = {.tensor = plan.degrees.tensor};  // the second grid is the first
    return;
  }
  refuse_what_would_be_ignored(section, scenario.recipe.precision.compute, findings);
  plan.experts = section.experts;
  plan.experts.tensor.otherwise(plan.degrees.tensor);
  const std::int64_t replica =
      std::int64_t{plan.degrees.tensor} * plan.degrees.context * plan.degrees.data;
  if (replica % (std::int64_t{plan.experts.ranks} * plan.experts.tensor) != 0) {
    findings.error("/parallelism/ep",
                   fmt::format("ep {} x etp {} does not divide tp {} x cp {} x dp {} = {} ranks of "
                               "a stage",
                               plan.experts.ranks, plan.experts.tensor.value(), plan.degrees.tensor,
                               plan.degrees.context, plan.degrees.data, replica),
                   possible_degrees(replica, plan.experts.tensor, experts));
    plan.experts.ranks = 1;
    plan.experts.tensor = plan.degrees.tensor;
    return;
  }
  if (const auto [dense, routed] = ranks_before_stages(plan); dense != routed) {
    findings.error("/parallelism/rank_order",
                   fmt::format("neighbouring stages are {} ranks apart for dense layers and {} for "
                               "experts; both grids must have the same stages",
                               dense, routed),
                   "put pp last");
    plan.experts.ranks = 1;
    plan.experts.tensor = plan.degrees.tensor;
    return;
  }
  if (experts % plan.experts.ranks != 0) return;  // reported with the network
  if (plan.experts.capacity > 0) return;          // every expert computes its slots, called or not
  if (!section.load.empty() && static_cast<std::int64_t>(section.load.size()) != experts) {
    findings.error("/parallelism/expert_parallel/load",
                   fmt::format("{} numbers for {} experts", section.load.size(), experts));
    return;
  }
  const std::vector<double> loads = expert_loads(section, experts, scenario.seed);
  if (loads.empty()) return;
  double sum = 0;
  for (const double load : loads)
    sum += load;
  if (sum <= 0) {
    findings.error("/parallelism/expert_parallel/load", "no expert gets any row");
    return;
  }
  const auto each = static_cast<std::size_t>(experts / plan.experts.ranks);
  for (std::size_t first = 0; first < loads.size(); first += each) {
    double own = 0;
    for (std::size_t e = first; e < first + each; ++e)
      own += loads[e];
    plan.expert_load.push_back(own / sum * plan.experts.ranks);
  }
}

}  // namespace trainyard::scenario
