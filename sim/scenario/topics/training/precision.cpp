// /training/precision: its table, the formats that follow from others, and those that do not fit.
#include <fmt/format.h>

#include <cstdlib>

#include "models/layer/kernel.h"
#include "models/layer/peak.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_memory.h"
#include "sim/scenario/runs_on.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::recipe {

using models::Dtype;

namespace {

using json::Choice;

constexpr std::array<Choice<Dtype>, 5> kDtypes = {{{"fp32", Dtype::fp32},
                                                   {"tf32", Dtype::tf32},
                                                   {"bf16", Dtype::bf16},
                                                   {"fp16", Dtype::fp16},
                                                   {"fp8", Dtype::fp8}}};
constexpr std::array<Choice<MasterWeights>, 4> kMasterWeights = {
    {{"fp32", MasterWeights::fp32},
     {"bf16", MasterWeights::bf16},
     {"remainder", MasterWeights::remainder},
     {"none", MasterWeights::none}}};
constexpr std::array<Choice<models::Fp8Recipe>, 5> kFp8Recipes = {
    {{"delayed", models::Fp8Recipe::delayed},
     {"current", models::Fp8Recipe::current},
     {"rowwise", models::Fp8Recipe::rowwise},
     {"blockwise", models::Fp8Recipe::blockwise},
     {"mxfp8", models::Fp8Recipe::mxfp8}}};
constexpr std::array<Choice<AmaxReduction>, 3> kAmaxReductions = {
    {{"none", AmaxReduction::none},
     {"replica", AmaxReduction::replica},
     {"stage", AmaxReduction::stage}}};
constexpr std::array<Choice<Dtype>, 4> kStateDtypes = {
    {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::fp16}, {"fp8", Dtype::fp8}}};

}  // namespace

void visit_fields(json::Fields& f, Precision& s) {
  f.choice("compute", s.compute, kDtypes, json::optional,
           "Type of matrix multiplications. Default: bf16, on GPUs without it fp16, else fp32.");
  f.choice("parameters", s.parameters, kStateDtypes,
           "Type in which weights are kept and gathered; fp8 with fp8 compute only; fp32 beside 16 "
           "bits: torch.autocast. Default: that of compute, bf16 with fp8.");
  f.choice("gradients", s.gradients, scenario::kGradientDtypes, json::optional,
           "Type in which gradients are kept and reduced. Default: that of the weights.");
  f.choice(
      "master_weights", s.master_weights, kMasterWeights, json::optional,
      "The optimizer's own copy of narrower weights; remainder: the 16 bits by which fp32 ones "
      "exceed them (Apex's distributed Adam).");
  f.choice("optimizer_states", s.optimizer_states, kStateDtypes, json::optional,
           "Type of the optimizer's moments; fp8: one byte, as in 8-bit Adam.");
  f.field(
      "cached_fp8_weights", s.cached_fp8_weights, json::optional,
      "fp8 compute: fp8 copies of the weights stay, by rows and by columns, instead of being cast "
      "in each pass.");
  f.field("kept_fp8_inputs", s.kept_fp8_inputs, json::anything,
          "fp8 compute: inputs of a layer's products are kept for the gradients of their weights, "
          "and gathered with sequence parallelism, in fp8 (Transformer Engine, DeepSeek-V3) "
          "instead of 16 bits (torchao). Default: true with fused execution.");
  f.field(
      "kept_fp8_gates", s.kept_fp8_gates, json::optional,
      "Fused execution: what SwiGLU reads is kept for its gradient in fp8, by a cast beside the "
      "activation and one back (Megatron-Core's activation_func_fp8_input_store).");
  f.choice(
      "fp8_recipe", s.fp8_recipe, kFp8Recipes,
      "fp8 compute: how operands get their scales: one for a tensor by its largest number some "
      "steps ago (delayed) or now, which takes a pass over it (current), one for each row "
      "(rowwise), for 128 numbers of an input and 128 x 128 of a weight (blockwise), for 32 "
      "(mxfp8). Default: delayed with fused execution, else current.");
  f.choice(
      "fp8_amax_reduction", s.fp8_amax_reduction, kAmaxReductions, json::optional,
      "Delayed scales: the ranks that agree on the largest numbers of operands after each pass "
      "through a chunk, by an all-reduce that the next kernel waits for: those of a stage in one "
      "replica (replica), or in all (stage; Transformer Engine's reduce_amax).");
  f.field(
      "fp8_transposes", s.fp8_transposes, json::anything,
      "fp8 compute: operands that are scaled as a whole are written by columns too, as products "
      "read rows only. Default: true before compute capability 10.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

using models::Dtype;
using recipe::TrainingRecipe;

namespace {

constexpr const char* kPrecision = "/training/precision";

// torch.autocast: fp32 weights beside products of 16 bits.
void check_autocast(const Scenario& scenario, const std::string& pointer, Findings& findings) {
  const TrainingRecipe& recipe = scenario.recipe;
  const recipe::Precision& types = recipe.precision;
  const models::Transformer* stack = models::stack_of(scenario.network);
  if (types.gradients != Dtype::fp32)
    findings.error(fmt::format("{}/gradients", kPrecision), "gradients of fp32 weights are fp32",
                   "remove it");
  if (types.master_weights.is_said() && types.master_weights != recipe::MasterWeights::none)
    findings.error(fmt::format("{}/master_weights", kPrecision),
                   "the weights themselves are fp32 here", "remove it");
  if (recipe.accumulation.is_said() && recipe.accumulation == recipe::Accumulation::product)
    findings.error(
        "/training/gradient_accumulation",
        "no product adds to fp32 gradients under autocast, which widens its result first",
        "remove it");
  constexpr const char* kCure = "remove it: master_weights keeps fp32 copies of 16-bit weights";
  if (plan::strategy_of(scenario.plan, recipe).layer_units)
    findings.error(pointer, "the sharded parameters are fp32, what is gathered of them is not",
                   "remove it");
  else if (stack == nullptr || scenario.network.is<models::EncoderDecoder>())
    findings.error(pointer,
                   "16-bit products of fp32 weights (torch.autocast) are described of decoders, "
                   "encoders and vision transformers",
                   kCure);
  else if (!recipe.finetune.all())
    findings.error(pointer, "autocast is described of networks that train whole",
                   "remove it; adapters have training/finetune/autocast");
}

void check_parameters(const Scenario& scenario, Findings& findings) {
  const TrainingRecipe& recipe = scenario.recipe;
  if (!recipe.precision.parameters) return;
  const std::string pointer = fmt::format("{}/parameters", kPrecision);
  if (recipe.precision.autocasts()) return check_autocast(scenario, pointer, findings);
  TrainingRecipe plain = recipe;
  plain.precision.parameters.reset();
  const Dtype natural = plan::weight_type(plain);
  if (*recipe.precision.parameters != Dtype::fp8) {
    if (*recipe.precision.parameters != natural)
      findings.error(pointer,
                     fmt::format("casting weights from {} to {} in each pass is not described",
                                 name(*recipe.precision.parameters), name(natural)),
                     fmt::format("leave it out: weights are {}, and master_weights keeps fp32 ones",
                                 name(natural)));
    return;
  }
  if (recipe.precision.compute != Dtype::fp8)
    findings.error(pointer,
                   fmt::format("weights in fp8 need matrix multiplications in fp8, compute is {}",
                               name(recipe.precision.compute)),
                   fmt::format("set compute to \"fp8\" or remove it"));
  else if (!recipe.precision.keeps_master())
    findings.error(pointer, "weights in fp8 are too coarse to be updated without a master copy",
                   "set master_weights to \"fp32\" or \"bf16\"");
}

void check_remainder(const TrainingRecipe& recipe, const recipe::ParallelPlan& plan,
                     Findings& findings) {
  const std::string pointer = fmt::format("{}/master_weights", kPrecision);
  if (plan::weight_type(recipe) != Dtype::bf16)
    findings.error(pointer,
                   fmt::format("remainders are of bf16 weights, and these are {}",
                               name(plan::weight_type(recipe))),
                   "\"fp32\", or \"none\"");
  else if (plan::strategy_of(plan, recipe).layer_units)
    findings.error(pointer, "the sharded parameters themselves are the fp32 copy here",
                   "\"fp32\", or \"none\"");
}

void check_master(const TrainingRecipe& recipe, const recipe::ParallelPlan& plan,
                  Findings& findings) {
  if (!recipe.precision.keeps_master()) return;
  if (recipe.precision.master_weights == recipe::MasterWeights::remainder)
    return check_remainder(recipe, plan, findings);
  if (recipe.precision.master_bytes() == size_of(Dtype::fp32)) return;
  if (models::size_of(plan::weight_type(recipe)) < recipe.precision.master_bytes()) return;
  findings.error(fmt::format("{}/master_weights", kPrecision),
                 fmt::format("a copy in bf16 is no better than the {} weights themselves",
                             name(plan::weight_type(recipe))),
                 "\"fp32\", or \"none\"");
}

void check_kept_inputs(const TrainingRecipe& recipe, Findings& findings) {
  const recipe::Precision& precision = recipe.precision;
  if (!precision.kept_fp8_inputs.value() || precision.compute == Dtype::fp8) return;
  findings.error(
      fmt::format("{}/kept_fp8_inputs", kPrecision),
      fmt::format("compute is {}: no input of a product is in fp8", name(precision.compute)),
      "remove it");
}

// Source: Megatron-Core, transformer/transformer_config.py, activation_func_fp8_input_store.
void check_kept_gates(const Scenario& scenario, Findings& findings) {
  const TrainingRecipe& recipe = scenario.recipe;
  if (!recipe.precision.kept_fp8_gates) return;
  const std::string pointer = fmt::format("{}/kept_fp8_gates", kPrecision);
  const models::Transformer* stack = models::stack_of(scenario.network);
  const bool reruns = recipe.recompute.form == models::Recompute::modules &&
                      recipe.recompute.modules.has(models::RecomputeModule::moe_act);
  if (stack == nullptr || stack->feed_forward != models::FeedForward::swiglu || stack->moe.clamped)
    findings.error(pointer, "only what SwiGLU without limits reads is kept in fp8", "remove it");
  else if (recipe.kernels.fusion != models::Fusion::by_hand)
    findings.error(pointer, "only beside a \"fused\" execution gates are described in fp8",
                   "remove it, or make the execution \"fused\"");
  else if (reruns)
    findings.error(pointer, "moe_act keeps what it runs again from, in 16 bits",
                   "remove it, or moe_act from /training/recompute/modules");
}

// A GPU that states no compute capability is taken to be of today.
bool has_block_scaled_units(const topologies::GpuSpec& gpu) {
  constexpr int kFirst = 10;
  return gpu.compute_capability.empty() || std::atoi(gpu.compute_capability.c_str()) >= kFirst;
}

void check_recipe(const TrainingRecipe& recipe, const topologies::GpuSpec& gpu,
                  Findings& findings) {
  const recipe::Precision& precision = recipe.precision;
  if (precision.compute != Dtype::fp8) {
    for (const auto& [key, said] : {std::pair{"fp8_recipe", precision.fp8_recipe.has_value()},
                                    {"fp8_transposes", precision.fp8_transposes.is_said()}}) {
      if (!said) continue;
      findings.error(
          fmt::format("{}/{}", kPrecision, key),
          fmt::format("compute is {}: no operand is cast to fp8", name(precision.compute)),
          "set compute to \"fp8\" or remove it");
    }
    return;
  }
  if (precision.fp8_recipe == models::Fp8Recipe::mxfp8 && !has_block_scaled_units(gpu))
    findings.error(fmt::format("{}/fp8_recipe", kPrecision),
                   fmt::format("{} has no units for scales of 32 numbers: its compute capability "
                               "is {}, and they came with 10.0",
                               gpu.name.empty() ? "the GPU" : gpu.name, gpu.compute_capability),
                   "\"delayed\", \"current\", \"rowwise\" or \"blockwise\"");
}

void check_amax_reduction(const Scenario& scenario, Findings& findings) {
  const TrainingRecipe& recipe = scenario.recipe;
  const recipe::Precision& precision = recipe.precision;
  if (precision.fp8_amax_reduction == recipe::AmaxReduction::none) return;
  const std::string pointer = fmt::format("{}/fp8_amax_reduction", kPrecision);
  if (precision.compute != Dtype::fp8)
    findings.error(pointer,
                   fmt::format("compute is {}: nothing is scaled", name(precision.compute)),
                   "set compute to \"fp8\" or remove it");
  else if (precision.scales() != models::Fp8Recipe::delayed)
    findings.error(pointer,
                   fmt::format("scales are {}: each is found from what it scales, and none of "
                               "earlier steps is kept",
                               name(precision.scales())),
                   "set fp8_recipe to \"delayed\" or remove it");
  else if (recipe.forward_only)
    findings.error(pointer, "without gradients Transformer Engine reduces nothing", "remove it");
  else if (precision.fp8_amax_reduction == recipe::AmaxReduction::stage &&
           plan::strategy_of(scenario.plan, recipe).own_steps > 1)
    findings.error(pointer, "replicas at their own pace would meet after each pass",
                   "\"replica\", or remove it");
}

void check_cached_weights(const TrainingRecipe& recipe, Findings& findings) {
  if (!recipe.precision.cached_fp8_weights) return;
  const std::string pointer = fmt::format("{}/cached_fp8_weights", kPrecision);
  if (recipe.precision.compute != Dtype::fp8)
    findings.error(
        pointer,
        fmt::format("compute is {}: no weight is cast to fp8", name(recipe.precision.compute)),
        "remove it");
  else if (plan::weight_type(recipe) == Dtype::fp8)
    findings.error(pointer, "the parameters are kept in fp8 already", "remove it");
}

}  // namespace

recipe::Precision assemble_precision(recipe::Precision precision, const topologies::GpuSpec& gpu) {
  const auto has = [&](Dtype dtype) { return models::peak_of(gpu, dtype).count() > 0; };
  precision.compute.otherwise(has(Dtype::bf16)   ? Dtype::bf16
                              : has(Dtype::fp16) ? Dtype::fp16
                                                 : Dtype::fp32);
  switch (precision.autocasts() ? Dtype::fp32 : precision.compute.value()) {
    case Dtype::fp32:
    case Dtype::tf32: precision.gradients.otherwise(Dtype::fp32); break;
    case Dtype::fp16: precision.gradients.otherwise(Dtype::fp16); break;
    case Dtype::bf16:
    case Dtype::fp8: precision.gradients.otherwise(Dtype::bf16); break;
  }
  precision.fp8_transposes.otherwise(!has_block_scaled_units(gpu));
  return precision;
}

namespace {

std::string units_of(const topologies::GpuSpec& gpu) {
  std::string has;
  for (const Dtype dtype : models::kDtypes) {
    if (models::peak_of(gpu, dtype).count() > 0)
      has += fmt::format("{}{}", has.empty() ? "it has " : ", ", name(dtype));
  }
  return has;
}

std::string called(const topologies::GpuSpec& gpu) {
  return gpu.name.empty() ? "the GPU" : gpu.name;
}

void check_units(const topologies::GpuSpec& gpu, Dtype compute, Findings& findings) {
  const Dtype beside = plan::stored_type(compute);
  if (const NotOnGpu refused = refuse_dtype(compute, gpu); !refused.why.empty()) {
    findings.error("/training/precision/compute", refused.why, refused.cure);
  } else if (!models::find_unit(gpu, beside)) {
    findings.error(
        "/training/precision/compute",
        fmt::format("{} keeps some products in {}, for which {} has no units", name(compute),
                    name(beside), called(gpu)),
        fmt::format("state the peak of {}, or of a wider type; {}", name(beside), units_of(gpu)));
  }
}

}  // namespace

NotOnGpu refuse_dtype(Dtype dtype, const topologies::GpuSpec& gpu) {
  if (models::peak_of(gpu, dtype).count() > 0) return {};
  return {fmt::format("{} has no {} units", called(gpu), name(dtype)), units_of(gpu)};
}

void validate_compute(const Scenario& scenario, Findings& findings) {
  const std::size_t before = findings.found.size();
  for (const topologies::GpuKind& kind : gpu_kinds_in_use(scenario.cluster))
    if (findings.found.size() == before)
      check_units(*kind.gpu, scenario.recipe.precision.compute, findings);
}

void validate_precision(const Scenario& scenario, Findings& findings) {
  const TrainingRecipe& recipe = scenario.recipe;
  check_parameters(scenario, findings);
  check_master(recipe, scenario.plan, findings);
  check_cached_weights(recipe, findings);
  check_kept_inputs(recipe, findings);
  check_kept_gates(scenario, findings);
  check_amax_reduction(scenario, findings);
  check_recipe(recipe, oldest_gpu(scenario.cluster), findings);
  const bool keeps_none =
      recipe.optimizer == recipe::Optimizer::sgd || recipe.optimizer == recipe::Optimizer::none;
  if (recipe.precision.optimizer_states.is_said() && keeps_none)
    findings.error(fmt::format("{}/optimizer_states", kPrecision),
                   recipe.optimizer == recipe::Optimizer::none
                       ? "there is no optimizer to keep states"
                       : "sgd without momentum keeps no state per parameter",
                   "remove it");
}

}  // namespace trainyard::scenario
