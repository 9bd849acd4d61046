// /training/finetune and /training/forward_only: as written, as simulated, and what they exclude.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "models/transformer/networks.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_memory.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/word_lists.h"
#include "sim/schedule/schedule.h"

namespace trainyard::scenario {

using models::Part;
using models::Target;

namespace {

using json::Choice;
using json::optional;
using Kind = FinetuneSection::Kind;
using Word = FinetuneSection::Targets;

constexpr const char* kFinetune = "/training/finetune";

constexpr std::array<Choice<Kind>, 4> kKinds = {
    {{"full", Kind::full}, {"lora", Kind::lora}, {"qlora", Kind::qlora}, {"frozen", Kind::frozen}}};
constexpr std::array<Choice<Word>, 14> kWords = {{{"q_proj", Word::q_proj},
                                                  {"k_proj", Word::k_proj},
                                                  {"v_proj", Word::v_proj},
                                                  {"o_proj", Word::o_proj},
                                                  {"gate_proj", Word::gate_proj},
                                                  {"up_proj", Word::up_proj},
                                                  {"down_proj", Word::down_proj},
                                                  {"linear_qkv", Word::linear_qkv},
                                                  {"linear_proj", Word::linear_proj},
                                                  {"linear_fc1", Word::linear_fc1},
                                                  {"linear_fc2", Word::linear_fc2},
                                                  {"attention", Word::attention},
                                                  {"mlp", Word::mlp},
                                                  {"all-linear", Word::all_linear}}};
constexpr std::array<Choice<models::BaseWeights>, 2> kBases = {
    {{"stored", models::BaseWeights::stored}, {"nf4", models::BaseWeights::nf4}}};
constexpr std::array<Choice<models::Unquantised>, 2> kUnquantised = {
    {{"stored", models::Unquantised::stored}, {"fp32", models::Unquantised::fp32}}};
constexpr std::array<Choice<Part>, models::kParts> kPartNames = {{{"embedding", Part::embedding},
                                                                  {"attention", Part::attention},
                                                                  {"mlp", Part::feed_forward},
                                                                  {"norms", Part::norms},
                                                                  {"head", Part::head}}};

constexpr std::array<Target, 4> kAttention = {Target::query, Target::key, Target::value,
                                              Target::output};
constexpr std::array<Target, 3> kFeedForward = {Target::gate, Target::up, Target::fc2};

void add(MemberSet<Target>& targets, Word word) {
  const auto all_of = [&](std::span<const Target> group) {
    for (const Target target : group)
      targets.add(target);
  };
  switch (word) {
    case Word::q_proj: return targets.add(Target::query);
    case Word::k_proj: return targets.add(Target::key);
    case Word::v_proj: return targets.add(Target::value);
    case Word::o_proj:
    case Word::linear_proj: return targets.add(Target::output);
    case Word::gate_proj: return targets.add(Target::gate);
    case Word::up_proj: return targets.add(Target::up);
    case Word::down_proj:
    case Word::linear_fc2: return targets.add(Target::fc2);
    case Word::linear_qkv: return targets.add(Target::qkv);
    case Word::linear_fc1: return targets.add(Target::fc1);
    case Word::attention: return all_of(kAttention);
    case Word::mlp: return all_of(kFeedForward);
    case Word::all_linear: all_of(kAttention); return all_of(kFeedForward);
  }
}

bool is_lora(const FinetuneSection& section) {
  return section.kind == Kind::lora || section.kind == Kind::qlora;
}

std::string pointer(const char* key) {
  return fmt::format("{}/{}", kFinetune, key);
}

// Keys of what the kind does not have.
void check_keys(const FinetuneSection& section, Findings& findings) {
  const bool lora = is_lora(section);
  for (const auto& [key, said] : {std::pair{"rank", section.rank.is_said()},
                                  {"targets", !section.targets.empty()},
                                  {"dropout", section.dropout.is_said()},
                                  {"dtype", section.dtype.has_value()},
                                  {"autocast", section.autocast.is_said()}})
    if (said && !lora)
      findings.error(pointer(key), "is of adapters, and nothing has one here",
                     "make the kind \"lora\" or \"qlora\", or remove it");
  const bool full = section.kind == Kind::full;
  if (full && section.base == models::BaseWeights::nf4)
    findings.error(pointer("base"),
                   "weights of 4 bits are too coarse to be updated, and full "
                   "training updates all of them",
                   "make the kind \"qlora\", or remove it");
  if (full && !section.trains.empty())
    findings.error(pointer("trains"), "everything trains", "make the kind \"frozen\" or \"lora\"");
  if (full && section.last_layers)
    findings.error(pointer("last_layers"), "every layer trains",
                   "make the kind \"frozen\" or \"lora\"");
  if (section.kind == Kind::frozen && section.trains.empty())
    findings.error(kFinetune, "everything is frozen, and nothing would train",
                   "name parts under \"trains\": embedding, attention, mlp, norms, head; or set "
                   "/training/forward_only for a forward pass alone");
  const bool narrow = section.kind == Kind::qlora || section.base == models::BaseWeights::nf4;
  for (const auto& [key, said] :
       {std::pair{"double_quantisation", section.double_quantisation.is_said()},
        {"unquantised", section.unquantised == models::Unquantised::fp32}})
    if (said && !narrow)
      findings.error(pointer(key), "no weight is kept in 4 bits",
                     "make the base \"nf4\", or remove it");
  if (section.kind == Kind::qlora && section.base == models::BaseWeights::stored)
    findings.error(pointer("base"), "qlora keeps frozen weights in 4 bits",
                   "make the kind \"lora\", or remove it");
}

}  // namespace

void visit_fields(json::Fields& f, FinetuneSection& s) {
  f.choice("kind", s.kind, kKinds, optional,
           "full: all weights; lora: adapters of low rank beside frozen weights; qlora: the same "
           "beside weights of 4 bits; frozen: the parts that \"trains\" names.");
  f.field("rank", s.rank, json::between(1, kMostWidth), "Of each adapter.");
  f.accepted("alpha", "Scales what adapters add. No time or memory depends on it.");
  f.choice("targets", s.targets, kWords, optional,
           "Linear layers with adapters, by Hugging Face's or Megatron's names; linear_qkv and "
           "linear_fc1 are one adapter for a joint product. attention: q, k, v, o; mlp: gate (if "
           "there is one), up, down; all-linear: both. Default: q_proj and v_proj.");
  f.field("dropout", s.dropout, json::between(0, 1), "Of what adapters read; 0: none.");
  f.choice("dtype", s.dtype, kGradientDtypes,
           "Of adapters' weights; products are of the compute type. Default: as other weights.");
  f.field(
      "autocast", s.autocast, json::anything,
      "fp32 adapters as peft runs them: each casts what it reads to fp32 and, with its weights, "
      "to 16 bits for its products, and keeps these copies.");
  f.choice("base", s.base, kBases,
           "Frozen matrices of layers: stored, as other weights, or nf4, 4 bits a number, which "
           "each product needs widened. Default: nf4 for qlora.");
  f.field("double_quantisation", s.double_quantisation, json::anything,
          "nf4: scales of 64 numbers are kept in 8 bits with an fp32 one for each 256 of them.");
  f.choice(
      "unquantised", s.unquantised, kUnquantised, optional,
      "nf4: embedding, head, norms and biases. stored: as other weights; fp32: in 4 bytes, and "
      "what layers hand on too, as peft's prepare_model_for_kbit_training leaves them.");
  f.choice("trains", s.trains, kPartNames, optional,
           "Parts that train whole; with adapters beside those.");
  f.field("last_layers", s.last_layers, json::between(1, kMostLayers),
          "So many layers at the end have adapters or train. Default: all.");
}

models::Finetune assemble_finetune(const FinetuneSection& section, Findings& findings) {
  check_keys(section, findings);
  models::Finetune how;
  how.kind = is_lora(section)               ? models::Finetune::Kind::lora
             : section.kind == Kind::frozen ? models::Finetune::Kind::frozen
                                            : models::Finetune::Kind::full;
  how.rank = section.rank;
  if (how.adapts() && section.targets.empty()) {
    how.targets.add(Target::query);
    how.targets.add(Target::value);
  }
  for (const Word word : section.targets)
    add(how.targets, word);
  how.dropout = section.dropout > 0;
  how.dtype = section.dtype;
  how.autocast = section.autocast;
  how.base = section.base.value_or(section.kind == Kind::qlora ? models::BaseWeights::nf4
                                                               : models::BaseWeights::stored);
  how.double_quantised = section.double_quantisation;
  how.unquantised = section.unquantised;
  for (const Part part : section.trains)
    how.trains.add(part);
  how.last_layers = section.last_layers.value_or(0);
  return how;
}

namespace {

void check_forward_only(const Scenario& scenario, Findings& findings) {
  const recipe::TrainingRecipe& recipe = scenario.recipe;
  if (!recipe.forward_only) return;
  const auto means_nothing = [&](const char* key, bool said, const char* why) {
    if (said) findings.error(fmt::format("/training/{}", key), why, "remove it");
  };
  const models::Recomputation& again = recipe.recompute;
  means_nothing("recompute", again.form != models::Recompute::none,
                "nothing is kept for a backward pass that forward_only leaves out");
  means_nothing("offload", recipe.offload.any(),
                "a forward pass alone has no states and keeps no activations to offload");
  means_nothing("gradient_clipping", recipe.gradient_clipping,
                "a forward pass alone has no gradients");
  means_nothing("optimizer/gradient_passes", recipe.optimizer_operators.gradient_passes > 0,
                "a forward pass alone has no gradients");
  const plan::DataParallelStrategy strategy = plan::strategy_of(scenario.plan, recipe);
  if (strategy.trains_apart || strategy.updates_elsewhere ||
      scenario.plan.data_parallel.compression.used())
    findings.error("/parallelism/data_parallel",
                   fmt::format("{} is about updates, and forward_only makes none",
                               scenario.plan.data_parallel.kind),
                   "remove it, or use zero3 or fsdp to divide the weights");
  const schedule::ScheduleEntry* schedule =
      schedule::find_schedule(scenario.plan.pipeline.schedule);
  if (schedule != nullptr && schedule->updates != schedule::Updates::after_all)
    findings.error("/training/forward_only",
                   fmt::format("the schedule {} updates weights while micro-batches are under way",
                               scenario.plan.pipeline.schedule),
                   "use one that updates them after all, such as 1f1b");
  if (schedule != nullptr && !schedule->times_from.empty())
    findings.error("/parallelism/pipeline/schedule",
                   fmt::format("{} is made from the times of backward passes, and there are none",
                               scenario.plan.pipeline.schedule),
                   "use 1f1b or gpipe");
}

void check_optimizer(const recipe::TrainingRecipe& recipe, Findings& findings) {
  if (recipe.optimizer != recipe::Optimizer::none || recipe.forward_only) return;
  if (recipe.gradient_clipping)
    findings.error("/training/gradient_clipping", "nothing is updated by the clipped gradients",
                   "remove it, or choose an optimizer");
  if (recipe.offload.optimizer != recipe::OffloadTo::none)
    findings.error("/training/offload/optimizer", "there is none, and it has no states",
                   "remove it, or choose an optimizer");
}

// FSDP gathers parameters in the compute type.
void check_sharded_units(const Scenario& scenario, Findings& findings) {
  const models::Finetune& how = scenario.recipe.finetune;
  if (!plan::strategy_of(scenario.plan, scenario.recipe).layer_units) return;
  for (const auto& [key, wide] :
       {std::pair{"autocast", how.autocast}, {"unquantised", how.widens_stream()}})
    if (wide)
      findings.error(pointer(key),
                     fmt::format("{} gathers parameters in the compute type, and none is wider",
                                 scenario.plan.data_parallel.kind),
                     "remove it, or use another kind of data parallelism");
}

// Frozen matrices in fp8 are one copy with one scale; what trains is beside them.
void check_fp8_base(const recipe::TrainingRecipe& recipe, Findings& findings) {
  const models::Finetune& how = recipe.finetune;
  if (plan::weight_type(recipe) != models::Dtype::fp8) return;
  constexpr const char* kParameters = "/training/precision/parameters";
  if (how.adapts() && !how.dtype)
    findings.error(kParameters, "adapters would be kept in fp8 as well",
                   fmt::format("set {} to \"bf16\" or \"fp32\"", pointer("dtype")));
  if (!how.trains.empty())
    findings.error(kParameters, "parts that train whole beside weights in fp8 are not described",
                   "set it to \"bf16\", or remove \"trains\"");
  if (recipe.precision.compute == models::Dtype::fp8 &&
      scaling_of(recipe.precision.scales()) != models::Scaling::tensor)
    findings.error(kParameters,
                   "weights kept in fp8 with a scale for each row or block are not described",
                   "set the recipe to \"delayed\" or \"current\", or this to \"bf16\"");
}

// Weights of 4 bytes beside products of 16 bits, which only adapters have a description of.
void check_wide_parts(const recipe::TrainingRecipe& recipe, Findings& findings) {
  const models::Finetune& how = recipe.finetune;
  const models::Dtype compute = recipe.precision.compute;
  const bool halves = compute == models::Dtype::bf16 || compute == models::Dtype::fp16;
  if (how.adapts() && how.dtype == models::Dtype::fp32 && halves && !how.trains.empty())
    findings.error(pointer("dtype"),
                   "parts that train whole would be fp32 as well, which 16-bit "
                   "products do not read",
                   "remove it, or \"trains\"");
}

// Casts of fp32 adapters for 16-bit products, as PyTorch's operators make them.
void check_autocast(const recipe::TrainingRecipe& recipe, Findings& findings) {
  if (!recipe.finetune.autocast) return;
  const models::Dtype adapters = plan::trained_type(recipe), compute = recipe.precision.compute;
  if (adapters != models::Dtype::fp32)
    findings.error(
        pointer("autocast"),
        fmt::format("adapters are {}, and products read them as they are", name(adapters)),
        "set dtype to \"fp32\", or remove it");
  else if (compute != models::Dtype::bf16 && compute != models::Dtype::fp16)
    findings.error(pointer("autocast"),
                   fmt::format("it casts to 16 bits, and compute is {}", name(compute)),
                   "set /training/precision/compute to \"bf16\" or \"fp16\"");
  else if (recipe.kernels.fusion != models::Fusion::eager)
    findings.error(pointer("autocast"),
                   "kernels that join operators need no copies between casts, and what they keep "
                   "is not described",
                   "set /training/execution to \"eager\", or remove it");
}

}  // namespace

void validate_finetune(const Scenario& scenario, Findings& findings) {
  const recipe::TrainingRecipe& recipe = scenario.recipe;
  check_forward_only(scenario, findings);
  check_optimizer(recipe, findings);
  const models::Finetune& how = recipe.finetune;
  if (how.all()) return;
  if (scenario.network.find<models::Transformer>() == nullptr)
    findings.error(kFinetune,
                   fmt::format("frozen weights and adapters are described for decoders, and it is "
                               "{}",
                               scenario.network.words()),
                   "remove it");
  const models::Dtype compute = recipe.precision.compute;
  if (how.quantises() && compute != models::Dtype::bf16 && compute != models::Dtype::fp16)
    findings.error(
        pointer("base"),
        fmt::format("weights of 4 bits are widened to 16, and compute is {}", name(compute)),
        "set /training/precision/compute to \"bf16\" or \"fp16\"");
  check_autocast(recipe, findings);
  check_sharded_units(scenario, findings);
  check_fp8_base(recipe, findings);
  check_wide_parts(recipe, findings);
  if (recipe.precision.cached_fp8_weights)
    findings.error(
        "/training/precision/cached_fp8_weights",
        "copies of weights are made anew after each update, and frozen weights have none",
        "remove it");
  if (plan::strategy_of(scenario.plan, recipe).updates_elsewhere)
    findings.error("/parallelism/data_parallel/kind",
                   "a server that updates adapters alone is not described",
                   "use allreduce, fsdp or another strategy whose ranks update");
  if (scenario.plan.data_parallel.compression.used())
    findings.error("/parallelism/data_parallel/compression",
                   "compressed gradients of adapters are not described", "remove it");
}

}  // namespace trainyard::scenario
