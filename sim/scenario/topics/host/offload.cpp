// /training/offload: its table, and what is offloaded against the strategy of data parallelism, the
// schedule and the server.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "models/transformer/networks.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/stage_orders.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/schedule/schedule.h"
#include "topologies/server_board.h"

namespace trainyard::recipe {

namespace {

using json::Choice;

constexpr std::array<Choice<OffloadTo>, 3> kPlaces = {
    {{"none", OffloadTo::none}, {"cpu", OffloadTo::cpu}, {"nvme", OffloadTo::nvme}}};
constexpr std::array<Choice<bool>, 2> kActivationPlaces = {{{"none", false}, {"cpu", true}}};

}  // namespace

void visit_fields(json::Fields& f, OffloadOptions& s) {
  f.choice("optimizer", s.optimizer, kPlaces, json::optional,
           "Where optimizer states are kept; the host updates them (ZeRO-Offload, ZeRO-Infinity).");
  f.choice("parameters", s.parameters, kPlaces, json::optional,
           "Where zero3, fsdp and hsdp keep their shards of the parameters.");
  f.not_yet({"nvme"});
  f.choice("activations", s.activations, kActivationPlaces, json::optional,
           "Where activations wait for their backward pass.");
  f.field("fraction", s.fraction, json::ratio,
          "Of the layers of a stage, its first ones, whose activations go.");
  f.field("prefetch_layers", s.prefetch_layers, json::between(0, kMostActivationPrefetch),
          "Layers whose activations are on their way beside the one that computes.");
  f.field("tile_parameters", s.tile_parameters, json::between(1, 1e12),
          "Parameters that the host updates at a time; as many as DeepSpeed does.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

using recipe::OffloadTo;
using schedule::Slot;

namespace {

constexpr const char* kOptimizer = "/training/offload/optimizer";
constexpr const char* kParameters = "/training/offload/parameters";
constexpr const char* kActivations = "/training/offload/activations";

// Options of what is not offloaded.
void check_options(const recipe::OffloadOptions& offload, Findings& findings) {
  const auto means_nothing = [&](const char* key, const char* pointer) {
    findings.error(fmt::format("/training/offload/{}", key),
                   fmt::format("means nothing, as {} is \"none\"", pointer), "remove it");
  };
  if (!offload.activations && offload.fraction.is_said()) means_nothing("fraction", kActivations);
  if (!offload.activations && offload.prefetch_layers.is_said())
    means_nothing("prefetch_layers", kActivations);
  if (offload.optimizer == OffloadTo::none && offload.tile_parameters.is_said())
    means_nothing("tile_parameters", kOptimizer);
}

void check_optimizer(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelPlan& plan = scenario.plan;
  if (scenario.recipe.offload.optimizer == OffloadTo::none) return;
  const plan::DataParallelStrategy strategy = plan::strategy_of(plan, scenario.recipe);
  const std::string& kind = plan.data_parallel.kind;
  if (strategy.trains_apart)
    findings.error(kOptimizer, fmt::format("{} keeps a second optimizer on the GPU", kind),
                   "use another kind of data parallelism");
  if (strategy.layer_units && scenario.recipe.offload.parameters == OffloadTo::none)
    findings.error(kOptimizer,
                   fmt::format("{} updates the shards of its parameters where they are, which is "
                               "the GPU",
                               kind),
                   "set /training/offload/parameters to \"cpu\" as well, as PyTorch's "
                   "CPUOffloadPolicy does, or use zero3");
  if (strategy.layer_units && scenario.recipe.offload.optimizer == OffloadTo::nvme)
    findings.error(kOptimizer, fmt::format("{} does not offload to NVMe", kind),
                   "use \"cpu\", or zero3 as ZeRO-Infinity does");
  if (scenario.network.is<models::Recommender>())
    findings.error(kOptimizer, "the backward pass updates tables where they are, on the GPU",
                   "remove it; /parallelism/embedding_parallel divides tables");
  if (plan.data_parallel.compression.kind != recipe::CompressionKind::none)
    findings.error(kOptimizer, "what of compressed gradients goes to the host is not described",
                   "remove /parallelism/data_parallel/compression, or keep the optimizer there");
  if (!plan.data_parallel.gradient_as_bucket_view)
    findings.error(kOptimizer, "the host reads buckets, which then are the gradients",
                   "remove /parallelism/data_parallel/gradient_as_bucket_view");
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(plan.pipeline.schedule);
  if (schedule != nullptr && schedule->updates != schedule::Updates::after_all)
    findings.error(kOptimizer,
                   fmt::format("the schedule {} updates weights while micro-batches are under way",
                               plan.pipeline.schedule),
                   "use one that updates them after all, such as 1f1b");
}

void check_parameters(const Scenario& scenario, Findings& findings) {
  const recipe::OffloadOptions& offload = scenario.recipe.offload;
  if (offload.parameters == OffloadTo::none) return;
  const plan::DataParallelStrategy strategy = plan::strategy_of(scenario.plan, scenario.recipe);
  if (strategy.gathering != plan::Gathering::each_pass) {
    const bool alone = scenario.plan.degrees.replicas() == 1;
    findings.error(kParameters,
                   alone ? "there is one replica, whose parameters are gathered by nobody"
                         : fmt::format("{} keeps all parameters on every GPU",
                                       scenario.plan.data_parallel.kind),
                   alone ? "raise dp and use zero3, fsdp or hsdp, or offload the optimizer only"
                         : "use zero3, fsdp or hsdp");
    return;
  }
  if (offload.optimizer == OffloadTo::none)
    findings.error(kParameters, "the optimizer on the GPU would need them there",
                   "set /training/offload/optimizer to \"cpu\" or \"nvme\" as well");
  if (strategy.layer_units && offload.parameters == OffloadTo::nvme)
    findings.error(kParameters,
                   fmt::format("{} does not offload to NVMe", scenario.plan.data_parallel.kind),
                   "use \"cpu\", or zero3 as ZeRO-Infinity does");
  if (strategy.layer_units && !scenario.plan.data_parallel.reshard_after_forward)
    findings.error("/parallelism/data_parallel/reshard_after_forward",
                   "false, the default with pp above 1, keeps on the GPU the parameters that are "
                   "offloaded",
                   "set it to true");
  const auto* network = scenario.network.find<models::Transformer>();
  if (network != nullptr && network->moe.experts > 0)
    findings.error(kParameters, "shards of routed experts are gathered in groups of their own",
                   strategy.layer_units ? "use zero3 and offload the optimizer only"
                                        : "offload the optimizer only");
}

// Requires: a scenario without errors so far, so that its schedule can be built.
void check_activations(const Scenario& scenario, Findings& findings) {
  if (!scenario.recipe.offload.activations) return;
  const recipe::ParallelPlan& plan = scenario.plan;
  const schedule::PipelineShape shape = plan::pipeline_shape(scenario.recipe, plan);
  const auto known = stage_orders(plan, shape);
  const schedule::StageOrders& orders = *known;
  const auto any = [&](auto is) {
    return std::any_of(orders.begin(), orders.end(), [&](const std::vector<Slot>& order) {
      return std::any_of(order.begin(), order.end(), is);
    });
  };
  const models::RecomputeLayers& groups = scenario.recipe.recompute.layers;
  if (groups.method == models::RecomputeLayers::Method::uniform && groups.layers > 1)
    findings.error(kActivations, "a group of layers that runs again needs its first layer's input",
                   "use groups of one layer, or the method \"block\"");
  const bool splits =
      any([](const Slot& slot) { return slot.pass == schedule::Pass::backward_input; });
  const bool pairs = any([](const Slot& slot) { return slot.paired; });
  if (!splits && !pairs) return;
  const bool chosen = plan.pipeline.overlap_passes;
  findings.error(kActivations,
                 fmt::format("the schedule {}{} {}", plan.pipeline.schedule,
                             chosen ? " with overlap_passes" : "",
                             splits ? "splits the backward pass, and both halves need activations"
                                    : "overlaps a forward with a backward pass"),
                 chosen ? "remove /parallelism/pipeline/overlap_passes"
                        : "use one that runs whole passes, such as 1f1b");
}

void check_server(const Scenario& scenario, Findings& findings) {
  const recipe::OffloadOptions& offload = scenario.recipe.offload;
  const topologies::ClusterSpec& cluster = scenario.cluster;
  if (!offload.any()) return;
  require_of_hosts(cluster, "pcie_bandwidth", states_pcie_bandwidth,
                   "what is offloaded crosses PCIe", findings);
  if (offload.optimizer != OffloadTo::none || scenario.fidelity == recipe::Fidelity::flow)
    require_of_hosts(cluster, "memory_bandwidth", states_memory_bandwidth,
                     "the host's update and copies run at it", findings);
  if (offload.optimizer != OffloadTo::nvme && offload.parameters != OffloadTo::nvme) return;
  const auto reads = [](const topologies::ServerSpec& server) {
    return server.nvme_read_bandwidth.count() > 0;
  };
  const auto writes = [](const topologies::ServerSpec& server) {
    return server.nvme_write_bandwidth.count() > 0;
  };
  require_of_hosts(cluster, "nvme_read_bandwidth", reads, "what is offloaded is on NVMe", findings);
  require_of_hosts(cluster, "nvme_write_bandwidth", writes, "what is offloaded is on NVMe",
                   findings);
}

}  // namespace

void validate_offload(const Scenario& scenario, Findings& findings) {
  check_options(scenario.recipe.offload, findings);
  if (findings.has_errors()) return;
  for (const topologies::GpuKind& kind : gpu_kinds(scenario.cluster))
    if (kind.gpu->is_cpu() && scenario.recipe.offload.any())
      return findings.error("/training/offload",
                            fmt::format("{} works in the host's memory already", kind.gpu->name),
                            "remove it");
  check_optimizer(scenario, findings);
  check_parameters(scenario, findings);
  check_server(scenario, findings);
  check_activations(scenario, findings);
}

}  // namespace trainyard::scenario
