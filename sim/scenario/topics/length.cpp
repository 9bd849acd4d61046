// How long the whole training is, and what an hour of it costs.
#include <fmt/format.h>

#include <vector>

#include "models/families/network.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

namespace {

// Samples of the whole training; 0 if nothing is said or what is said is wrong.
double samples_of(const LengthSection& said, const Scenario& scenario, Findings& findings) {
  std::vector<const char*> ways;
  if (said.tokens) ways.push_back("tokens");
  if (said.samples) ways.push_back("samples");
  if (said.epochs) ways.push_back("epochs");
  if (ways.size() > 1) {
    findings.error("/training",
                   fmt::format("the length of the training is said in more than one way: {}",
                               fmt::join(ways, " and ")),
                   "keep one of them");
    return 0;
  }
  if (said.epochs && !said.dataset_size)
    findings.error("/training/epochs", "how many samples an epoch has is not said",
                   "add training.dataset_size");
  if (said.dataset_size && !said.epochs)
    findings.error("/training/dataset_size", "means nothing without epochs",
                   "add training.epochs, or remove it");
  if (said.samples) return *said.samples;
  if (said.epochs) return *said.epochs * said.dataset_size.value_or(0);
  if (!said.tokens) return 0;
  if (!reads_tokens(scenario.network)) {
    findings.error("/training/tokens", "samples are no tokens", "say it in training.samples");
    return 0;
  }
  return *said.tokens / static_cast<double>(scenario.recipe.micro_batch.sequence_length);
}

}  // namespace

recipe::TrainingLength assemble_length(const ScenarioSections& sections, const Scenario& scenario,
                                       Findings& findings) {
  recipe::TrainingLength length;
  length.samples = samples_of(sections.training.length, scenario, findings);
  const CostSection& cost = sections.cost;
  const topologies::ServerSpec& server = scenario.cluster.server;
  length.gpu_hour = cost.gpu_hour;
  length.own = cost.own;
  if (cost.gpu_hour && cost.server_hour)
    findings.error("/cost/server_hour", "what is rented has two prices", "remove gpu_hour or it");
  else if (cost.server_hour)
    length.gpu_hour = *cost.server_hour / server.gpus;
  if (scenario.cluster.kinds() > 1 && cost.server_hour)
    findings.error("/cost/server_hour", "servers of different kinds have no one price",
                   "state gpu_hour, the mean of their GPUs");
  if (scenario.cluster.kinds() > 1 && cost.own)
    findings.error("/cost/own", "what is bought is described for servers of one kind", "remove it");
  if (cost.own && !length.gpu_hour)
    findings.error("/cost/own", "there is no price of rented GPUs to compare with",
                   "add cost.gpu_hour or cost.server_hour");
  const bool is_known = [&] {
    for (const topologies::GpuKind& kind : gpu_kinds_in_use(scenario.cluster))
      if (kind.gpu->busy_power <= Watts(0)) return false;
    return true;
  }();
  if (cost.own && !is_known)
    findings.error("/cost/own", "what a GPU draws is not known", "add cluster.node.gpu.power");
  const bool is_for_nothing = length.gpu_hour && length.samples == 0 && !cost.own;
  if (is_for_nothing && !findings.has_errors())
    findings.warning(cost.gpu_hour ? "/cost/gpu_hour" : "/cost/server_hour",
                     "how long the training is is not said, so it has no price",
                     "add training.tokens, training.samples or training.epochs");
  return length;
}

}  // namespace trainyard::scenario
