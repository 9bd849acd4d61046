#include "models/layer/layer_work.h"

#include "models/layer/work_list.h"
#include "sim/base/check.h"

namespace trainyard::models {

std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
    case Recompute::modules: return "modules";
    case Recompute::operators: return "selective_op";
  }
  TRAINYARD_CHECK(false, "recompute {}", static_cast<int>(recompute));
  return "?";
}

std::string_view name(RecomputeModule module) {
  switch (module) {
    case RecomputeModule::core_attn: return "core_attn";
    case RecomputeModule::mlp: return "mlp";
    case RecomputeModule::moe: return "moe";
    case RecomputeModule::moe_act: return "moe_act";
    case RecomputeModule::shared_experts: return "shared_experts";
    case RecomputeModule::layernorm: return "layernorm";
    case RecomputeModule::mla_up_proj: return "mla_up_proj";
  }
  TRAINYARD_CHECK(false, "recompute module {}", static_cast<int>(module));
  return "?";
}

std::string_view name(Module module) {
  switch (module) {
    case Module::layer_input: return "layer input";
    case Module::norms: return "norms";
    case Module::attention: return "attention";
    case Module::attention_scores: return "attention scores";
    case Module::feed_forward: return "feed-forward";
    case Module::experts: return "experts";
    case Module::mamba: return "Mamba";
    case Module::dropout_masks: return "dropout masks";
    case Module::embedding: return "embedding";
    case Module::head: return "head";
    case Module::features: return "features";
  }
  TRAINYARD_CHECK(false, "module {}", static_cast<int>(module));
  return "?";
}

std::vector<WorkItem> recomputed(std::vector<WorkItem> items) {
  for (WorkItem& item : items) {
    if (auto* kernel = std::get_if<NamedKernel>(&item)) {
      kernel->name.insert(0, "recompute ");
      kernel->repeated = true;
    }
    if (auto* start = std::get_if<GroupCollective>(&item)) start->name.insert(0, "recompute ");
  }
  return items;
}

}  // namespace trainyard::models
