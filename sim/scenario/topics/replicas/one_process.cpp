// /parallelism/data_parallel of kind nn_data_parallel: what one process with a thread for each GPU
// goes with.
#include <fmt/format.h>

#include <string>

#include "models/families/network.h"
#include "models/recommender/recommender.h"
#include "models/transformer/networks.h"
#include "sim/plan/replicas/leader/loss_place.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

namespace {

constexpr const char* kKind = "/parallelism/data_parallel/kind";

void check_ranks(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  if (degrees.data != degrees.world_size())
    findings.error(kKind, "each GPU of the process has a copy of the whole network",
                   "set tp, pp and cp to 1, or use allreduce");
  if (scenario.cluster.servers > 1)
    findings.error(
        kKind,
        fmt::format("it is one process on one server, and there are {}", scenario.cluster.servers),
        "use allreduce, which is PyTorch's DistributedDataParallel");
}

void check_network(const Scenario& scenario, Findings& findings) {
  const auto* transformer = scenario.network.find<models::Transformer>();
  if (transformer != nullptr && transformer->moe.experts > 0)
    findings.error(kKind, "copies of routed experts for each pass are not described",
                   "use allreduce, or a dense network");
  if (scenario.network.is<models::Recommender>())
    findings.error(kKind, "copies of embedding tables for each pass are not described",
                   "use allreduce, which leaves tables where they are");
}

void check_recipe(const Scenario& scenario, Findings& findings) {
  const recipe::TrainingRecipe& recipe = scenario.recipe;
  if (recipe.kernels.fusion != models::Fusion::eager)
    findings.error("/training/execution", "torch.nn.DataParallel runs PyTorch's own kernels",
                   "set it to \"eager\", or software to \"pytorch-ddp\"");
  else if (recipe.accumulation != recipe::Accumulation::autograd)
    findings.error("/training/gradient_accumulation",
                   "each pass has new copies of the parameters, whose gradients autograd adds",
                   "remove it");
  if (recipe.precision.compute == models::Dtype::fp8)
    findings.error("/training/precision/compute",
                   "copies of 8-bit weights and their scales for each pass are not described",
                   "use \"bf16\" or \"fp16\"");
  if (recipe.finetune.quantises())
    findings.error("/training/finetune/base", "weights of 4 bits cannot be copied for each pass",
                   "use kind lora, or allreduce");
  if (recipe.offload.any())
    findings.error("/training/offload", "one process for all GPUs offloads nothing", "remove it");
  if (recipe.memory.kept_outputs > 0)
    findings.error("/training/memory/kept_outputs",
                   "outputs that one process for several GPUs keeps are not described",
                   "remove it, or use allreduce");
  if (recipe.input)
    findings.error("/training/input_pipeline",
                   "workers of one process for several GPUs are not described",
                   "remove it, or use allreduce");
}

void check_loss(const Scenario& scenario, Findings& findings) {
  if (scenario.plan.data_parallel.loss_in_model) return;
  const models::NetworkWork work =
      network_work(scenario.network, plan::execution(scenario.recipe, scenario.plan));
  if (const std::optional<std::string> why = plan::loss_stays(work))
    findings.error(kKind,
                   fmt::format("the loss cannot be computed on the first GPU for all: {}", *why),
                   "set loss_in_model to true, or make training.loss eager");
}

}  // namespace

void validate_one_process(const Scenario& scenario, Findings& findings) {
  if (scenario.plan.degrees.world_size() == 1) return;
  check_ranks(scenario, findings);
  check_network(scenario, findings);
  check_recipe(scenario, findings);
  if (!findings.has_errors()) check_loss(scenario, findings);
}

}  // namespace trainyard::scenario
