#include "sim/plan/step_memory.h"

#include <algorithm>
#include <variant>

#include "models/layer/work_list.h"
#include "sim/base/divide.h"

namespace trainyard::plan {

using models::Dtype;
using models::MemoryBound;
using models::MemoryOp;
using models::NamedKernel;
using models::WorkItem;
using recipe::Accumulation;
using recipe::Optimizer;
using recipe::TrainingRecipe;

namespace {

// Of a weight: by rows, and by columns where products or scales want them.
std::int64_t copies_of_a_weight(const TrainingRecipe& recipe) {
  const recipe::Precision& precision = recipe.precision;
  const bool whole = scaling_of(precision.scales()) == models::Scaling::tensor;
  return whole && !precision.fp8_transposes ? 1 : 2;
}

// Numbers that the optimizer itself keeps for each parameter.
std::int64_t moments(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::none:
    case Optimizer::sgd: return 0;
    case Optimizer::sgd_momentum:
    case Optimizer::lion: return 1;
    case Optimizer::adam:
    case Optimizer::lamb: return 2;
  }
  return 0;
}

// A copy of weights that are narrower than itself, for the update.
bool keeps_master(const TrainingRecipe& recipe) {
  return recipe.precision.keeps_master() && recipe.optimizer != Optimizer::none &&
         size_of(trained_type(recipe)) < size_of(Dtype::fp32);
}

// In which a backward pass hands gradients of weights on; autocast widens what its products make.
Dtype produced_type(const TrainingRecipe& recipe) {
  return recipe.precision.autocasts() ? Dtype::fp32 : stored_type(recipe.precision.compute);
}

// Bytes of one parameter in each state.
StateBytes per_parameter(const TrainingRecipe& recipe, bool layer_units) {
  const Bytes weight = size_of(trained_type(recipe));
  if (recipe.forward_only) return {weight, Bytes(0), Bytes(0)};
  const Bytes states = moments(recipe.optimizer) * size_of(recipe.precision.optimizer_states);
  const Bytes master = keeps_master(recipe) ? recipe.precision.master_bytes() : Bytes(0);
  if (layer_units) {
    const Bytes own = std::max(master, weight);
    return {own, own, states};
  }
  return {weight, size_of(recipe.precision.gradients), states + master};
}

}  // namespace

Dtype stored_type(Dtype compute) {
  return compute == Dtype::fp8 ? Dtype::bf16 : compute;
}

Dtype weight_type(const TrainingRecipe& recipe) {
  if (recipe.precision.parameters) return *recipe.precision.parameters;
  return recipe.precision.compute == Dtype::tf32 ? Dtype::fp32
                                                 : stored_type(recipe.precision.compute);
}

Dtype trained_type(const TrainingRecipe& recipe) {
  return recipe.finetune.dtype.value_or(weight_type(recipe));
}

std::array<Bytes, 2> frozen_bytes(const models::FrozenWeights& frozen,
                                  const TrainingRecipe& recipe) {
  if (frozen.parameters + frozen.expert_parameters == 0) return {};
  const Dtype kept = weight_type(recipe);
  // Only products have weights in fp8. Source: Transformer Engine, fp8_model_init, of whose modules
  // embedding, head and norms are none or keep those weights as they are.
  const Dtype others = recipe.finetune.widens_stream() ? Dtype::fp32
                       : kept == Dtype::fp8            ? stored_type(recipe.precision.compute)
                                                       : kept;
  const Bytes matrices =
      recipe.finetune.quantises() ? frozen.quantised_bytes : frozen.matrices * size_of(kept);
  return {(frozen.parameters - frozen.matrices) * size_of(others) + matrices,
          frozen.expert_parameters * size_of(kept)};
}

std::vector<const models::Gemm*> fp8_products(const std::vector<WorkItem>& items) {
  std::vector<const models::Gemm*> products;
  for (const WorkItem& item : items) {
    const auto* named = std::get_if<models::NamedKernel>(&item);
    const models::Gemm* gemm =
        named == nullptr ? nullptr : std::get_if<models::Gemm>(&named->kernel);
    if (gemm != nullptr && gemm->dtype == Dtype::fp8 && named->piece == 0) products.push_back(gemm);
  }
  return products;
}

Bytes fp8_copies(const std::vector<WorkItem>& forward, const TrainingRecipe& recipe) {
  if (!recipe.precision.cached_fp8_weights) return Bytes(0);
  std::int64_t weights = 0;
  for (const models::Gemm* product : fp8_products(forward))
    weights += product->n * product->k * product->batch;
  return copies_of_a_weight(recipe) * weights * size_of(Dtype::fp8);
}

std::vector<WorkItem> fp8_refresh(Bytes copies, const TrainingRecipe& recipe) {
  if (copies == Bytes(0)) return {};
  const Bytes weights = copies.count() / copies_of_a_weight(recipe) * size_of(Dtype::bf16);
  std::vector<WorkItem> work;
  if (recipe.precision.scales() == models::Fp8Recipe::current)
    work.emplace_back(
        NamedKernel{"largest weights", MemoryBound{MemoryOp::amax, weights, Bytes(0)}});
  work.emplace_back(NamedKernel{"weights to fp8", MemoryBound{MemoryOp::cast, weights, copies}});
  return work;
}

std::int64_t shard_of(std::int64_t parameters, int shards) {
  return divide_up(parameters, shards);
}

StateBytes state_bytes(std::int64_t parameters, const TrainingRecipe& recipe,
                       const DataParallelStrategy& strategy) {
  StateBytes each = per_parameter(recipe, strategy.layer_units);
  if (strategy.updates_elsewhere) each.optimizer_state = Bytes(0);
  return {shard_of(parameters, strategy.parameter_shards) * each.parameters,
          shard_of(parameters, strategy.gradient_shards) * each.gradients,
          shard_of(parameters, strategy.optimizer_shards) * each.optimizer_state};
}

MemoryBound optimizer_kernel(std::int64_t parameters, const TrainingRecipe& recipe,
                             const DataParallelStrategy& strategy) {
  const StateBytes each = per_parameter(recipe, strategy.layer_units);
  const std::int64_t own = shard_of(parameters, strategy.optimizer_shards);
  const bool reads_master =
      keeps_master(recipe) && recipe.precision.keeps_whole_master() && !strategy.layer_units;
  return {.op = MemoryOp::optimizer,
          .read = own * (each.gradients + each.optimizer_state +
                         (reads_master ? Bytes(0) : each.parameters)),
          .written = own * (each.optimizer_state + each.parameters)};
}

bool converts_for_optimizer(const TrainingRecipe& recipe, const DataParallelStrategy& strategy) {
  return recipe.kernels.fusion != models::Fusion::by_hand && keeps_master(recipe) &&
         recipe.precision.keeps_whole_master() && !strategy.layer_units;
}

std::vector<WorkItem> lamb_kernels(const MemoryBound& update, std::int64_t own,
                                   const TrainingRecipe& recipe) {
  const Bytes single = own * size_of(Dtype::fp32);
  const Bytes written =
      own * moments(recipe.optimizer) * size_of(recipe.precision.optimizer_states);
  models::WorkList list;
  const auto kernel = [&](const char* name, Bytes read, Bytes to) {
    list.kernel(name, MemoryBound{.op = MemoryOp::optimizer, .read = read, .written = to});
  };
  if (!recipe.gradient_clipping)
    kernel("gradient norm", own * size_of(recipe.precision.gradients), Bytes(0));
  kernel("optimizer step", update.read, written + single);
  kernel("norms of weights and updates", 2 * single, Bytes(0));
  kernel("weights from updates", 2 * single, update.written - written);
  return list.take();
}

std::vector<WorkItem> converting_optimizer(std::int64_t parameters, const TrainingRecipe& recipe,
                                           const DataParallelStrategy& strategy) {
  const StateBytes each = per_parameter(recipe, strategy.layer_units);
  const std::int64_t own = shard_of(parameters, strategy.optimizer_shards);
  const Bytes single = own * size_of(Dtype::fp32);
  const Bytes state = own * each.optimizer_state;
  models::WorkList list;
  if (each.gradients != size_of(Dtype::fp32)) {
    list.kernel(
        "gradients to fp32",
        MemoryBound{.op = MemoryOp::elementwise, .read = own * each.gradients, .written = single});
  }
  list.kernel("optimizer step",
              MemoryBound{.op = MemoryOp::optimizer, .read = single + state, .written = state});
  list.kernel("weights from master copy", MemoryBound{.op = MemoryOp::elementwise,
                                                      .read = own * recipe.precision.master_bytes(),
                                                      .written = own * each.parameters});
  return list.take();
}

Bytes optimizer_workspace(std::int64_t parameters, const TrainingRecipe& recipe,
                          const DataParallelStrategy& strategy) {
  const bool same_type = size_of(recipe.precision.gradients) == size_of(Dtype::fp32);
  if (!converts_for_optimizer(recipe, strategy) || same_type) return Bytes(0);
  return shard_of(parameters, strategy.optimizer_shards) * size_of(Dtype::fp32);
}

std::vector<WorkItem> accumulation_work(std::int64_t parameters, const TrainingRecipe& recipe,
                                        int microbatches) {
  const Bytes produced = size_of(produced_type(recipe));
  const Bytes kept = size_of(recipe.precision.gradients);
  const bool same_type = produced == kept;
  models::WorkList list;
  const auto kernel = [&](const char* name, std::int64_t numbers, Bytes read, bool is_mixed) {
    if (numbers == 0) return;
    list.kernel(name, MemoryBound{.op = MemoryOp::elementwise,
                                  .read = numbers * read,
                                  .written = numbers * kept,
                                  .elements = is_mixed ? numbers : 0});
  };
  switch (recipe.accumulation.value()) {
    case Accumulation::product: break;
    case Accumulation::kernel:
    case Accumulation::after_pass:
      kernel("gradient accumulation", parameters, produced + kept, !same_type);
      break;
    case Accumulation::converted:
      if (!same_type) kernel("gradient conversion", parameters, produced, true);
      kernel("gradient accumulation", parameters, kept + kept, false);
      break;
    case Accumulation::autograd: {
      const std::int64_t first = divide_up(parameters, microbatches);
      if (!same_type) kernel("gradient conversion", first, produced, true);
      kernel("gradient accumulation", parameters - first, produced + kept, !same_type);
    }
  }
  return list.take();
}

Bytes unsummed_gradients(std::int64_t parameters, const TrainingRecipe& recipe) {
  const Bytes produced = size_of(produced_type(recipe));
  const Accumulation how = recipe.accumulation;
  const bool waits = how == Accumulation::after_pass || how == Accumulation::converted;
  if (!waits || produced == size_of(recipe.precision.gradients)) return Bytes(0);
  return parameters * produced;
}

}  // namespace trainyard::plan
