// /training: its table and the optimizer; its other parts have files of their own.
#include <fmt/format.h>

#include "models/recommender/recommender.h"
#include "models/transformer/networks.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::recipe {

void visit_fields(json::Fields& f, CollectiveCall& s) {
  f.field("time", s.time, scenario::kOfOneCall, "However many ranks the group has.");
  f.field("per_rank", s.per_rank, scenario::kOfOneCall,
          "For each rank of the group, where they check each other's calls.");
}

}  // namespace trainyard::recipe

namespace trainyard::scenario {

using recipe::Optimizer;

namespace {

using json::between;
using json::Choice;
using json::optional;
using json::positive;
using json::required;

using recipe::Accumulation;

constexpr std::array<Choice<models::Fusion>, 3> kExecutions = {
    {{"fused", models::Fusion::by_hand},
     {"eager", models::Fusion::eager},
     {"compiled", models::Fusion::compiled}}};
constexpr std::array<Choice<bool>, 2> kRecomputed = {{{"all", false}, {"except_last", true}}};
constexpr std::array<Choice<Accumulation>, 5> kAccumulations = {
    {{"product", Accumulation::product},
     {"kernel", Accumulation::kernel},
     {"after_pass", Accumulation::after_pass},
     {"converted", Accumulation::converted},
     {"autograd", Accumulation::autograd}}};
constexpr std::array<Choice<Optimizer>, 6> kOptimizers = {{{"adam", Optimizer::adam},
                                                           {"adamw", Optimizer::adam},
                                                           {"lamb", Optimizer::lamb},
                                                           {"lion", Optimizer::lion},
                                                           {"sgd", Optimizer::sgd},
                                                           {"none", Optimizer::none}}};
// More would be no optimizer, and their bytes no number.
constexpr double kMostAccesses = 1000;

}  // namespace

void visit_fields(json::Fields& f, OptimizerSection& s) {
  f.choice("type", s.type, kOptimizers, optional,
           "How parameters are updated; lamb has Adam's states and norms of each array, lion one "
           "moment. none: gradients are made and reduced, and nothing is updated. Default: adam of "
           "transformers, sgd of other networks, with momentum but of recommenders.");
  f.field("momentum", s.momentum, json::anything,
          "SGD keeps a momentum per parameter. Default: false where the type is said.");
  f.field("accesses", s.operators.accesses, optional, between(0.0, kMostAccesses),
          "fp32 numbers that the optimizer's operators read or write for each parameter; 0: it is "
          "one kernel that reads and writes every state once.");
  f.field("launches", s.operators.launches, optional, between(0.0, kMostAccesses),
          "What launching those operators costs for each array of parameters, in host times of an "
          "average kernel.");
  f.field("waits", s.operators.waits, optional,
          "The host launches the optimizer when the gradients are there, as it reads their norm "
          "or whether they are finite.");
  f.field("gradient_passes", s.operators.gradient_passes, optional, between(0, 16),
          "How often all gradients that a rank holds are read or written beside accumulation, "
          "reduction and clipping: once to set them to zero or to look for NaN, twice to scale "
          "them.");
  f.unsupported("offload", "offload as a part of the optimizer; say it under /training/offload",
                {"false"});
}

void visit_fields(json::Fields& f, TrainingSection& s) {
  f.field("global_batch", s.recipe.global_batch, required, between(1, kMostBatch),
          "Sequences, images or samples per optimizer step, over all GPUs.");
  visit_fields(f, s.recipe.micro_batch);
  f.section("precision", s.recipe.precision, optional, "Number formats.");
  f.section("optimizer", s.optimizer, optional, "How parameters are updated.");
  f.section("finetune", s.finetune, optional, "Which weights train.");
  f.field("forward_only", s.recipe.forward_only, optional,
          "No backward pass and no update, as in inference or an evaluation: activations are freed "
          "as soon as the next layer has run.");
  f.name_or_section("recompute", s.recompute, kRecomputeForms, s.recompute_parts, optional,
                    "Activations computed again in the backward pass: none, selective (scores of "
                    "unfused attention), full, selective_op (PyTorch's, by operators), or an "
                    "object that names modules or layers.");
  f.field("recompute_stops_early", s.recipe.recompute.stops_early, optional,
          "A layer that runs again whole runs up to the last tensor that its backward pass reads, "
          "so that no product of the feed-forward layer's output is made again.");
  f.choice("recompute_micro_batches", s.recipe.recompute.except_last, kRecomputed, optional,
           "All, or except_last: the one whose backward pass comes first keeps everything, which "
           "is the last where they go in reverse, as in torchgpipe, and the first here.");
  f.field("recompute_ahead", s.recipe.recompute.ahead, optional,
          "What a stage runs again first in a backward pass it runs before the gradients arrive "
          "(torchgpipe); without, when they have.");
  f.choice("gradient_accumulation", s.recipe.accumulation, kAccumulations, optional,
           "What adds a micro-batch's gradients of weights to those before: the product that makes "
           "them (Megatron Core), a kernel (Megatron-LM of 2021), one after_pass (nanotron), two "
           "after it (converted: DeepSpeed's for bf16), or PyTorch's autograd, from the second "
           "micro-batch on. Default: product where kernels are fused, autograd elsewhere.");
  visit_fields(f, s.recipe.kernels);
  f.choice("execution", s.execution, kExecutions,
           "Element-wise kernels: fused by hand as in Megatron-LM (transformers), PyTorch's "
           "eager operators, or those of torch.compile (transformers). Default: fused for "
           "transformers, eager for all others.");
  f.field("launch_time", s.recipe.launch_time, kOfOneCall,
          "Host time per kernel; 0us: a CUDA graph. Default: the profile's.");
  f.section("collective_call", s.recipe.collective_call, optional,
            "Host time of a collective's call, beside its launch: inside layers and of gradients "
            "that all replicas reduce.");
  f.field("gradient_clipping", s.recipe.gradient_clipping, optional,
          "Gradients are scaled by the norm of all of them before the optimizer step.");
  f.choice("embedding_optimizer", s.embedding_optimizer, kTableOptimizers,
           "How the backward pass updates the tables of a recommender. Default: "
           "row_wise_adagrad.");
  f.section("memory", s.recipe.memory, optional,
            "What the device holds beside what the training script allocates.");
  f.section("offload", s.recipe.offload, optional, "What is kept in the host's memory or on NVMe.");
  f.field("tokens", s.length.tokens, positive,
          "Of the whole training, to say how long it takes and what it costs.");
  f.field("samples", s.length.samples, positive, "The same in sequences, images or samples.");
  f.field("epochs", s.length.epochs, positive, "The same in passes over dataset_size.");
  f.field("dataset_size", s.length.dataset_size, positive, "Samples of an epoch.");
  f.unsupported("dataset", "a data set; give /training/tokens, or epochs and dataset_size");
  f.section("input_pipeline", s.recipe.input,
            "Workers that prepare batches on the host. Without it input is ready in time.");
  f.unsupported("checkpoint", "writing checkpoints; a step without one is simulated");
}

namespace {

// What published recipes use. Sources: Megatron-LM and torchtitan (Adam); torchvision's references
// (SGD with momentum); MLPerf's DLRM (SGD).
Optimizer usual_optimizer(const models::Network& network) {
  if (stack_of(network) != nullptr) return Optimizer::adam;
  return network.is<models::Recommender>() ? Optimizer::sgd : Optimizer::sgd_momentum;
}

Optimizer assemble_optimizer(const OptimizerSection& section, const models::Network& network,
                             Findings& findings) {
  const Optimizer usual = usual_optimizer(network);
  const bool is_sgd =
      section.type.is_said() ? section.type == Optimizer::sgd : usual != Optimizer::adam;
  const bool usual_momentum = !section.type.is_said() && usual == Optimizer::sgd_momentum;
  const bool momentum = section.momentum.is_said() ? section.momentum.value() : usual_momentum;
  if (momentum && !is_sgd)
    findings.error("/training/optimizer/momentum", "only sgd has a momentum of its own",
                   "remove it");
  if (!is_sgd) return section.type.is_said() ? section.type.value() : Optimizer::adam;
  return momentum ? Optimizer::sgd_momentum : Optimizer::sgd;
}

void check_accumulation(const recipe::TrainingRecipe& recipe, const models::Network& network,
                        Findings& findings) {
  if (recipe.accumulation != Accumulation::product &&
      recipe.kernels.placeholders != models::Placeholders::none)
    findings.error("/training/gradient_placeholders",
                   "autograd gets the gradients themselves, as no product adds to them",
                   "remove it, or make gradient_accumulation \"product\"");
  if (recipe.accumulation != Accumulation::product || stack_of(network) != nullptr) return;
  findings.error(
      "/training/gradient_accumulation",
      fmt::format("only products of transformers add to gradients, and it is {}", network.words()),
      "\"autograd\" is what PyTorch does");
}

}  // namespace

recipe::TrainingRecipe assemble_recipe(const TrainingSection& section,
                                       const models::Network& network,
                                       const topologies::GpuSpec& gpu, Findings& findings) {
  recipe::TrainingRecipe recipe = section.recipe;
  recipe.micro_batch = assemble_batch(recipe.micro_batch, network, findings);
  recipe.precision = assemble_precision(recipe.precision, gpu);
  recipe.optimizer = assemble_optimizer(section.optimizer, network, findings);
  recipe.optimizer_operators = section.optimizer.operators;
  recipe.finetune = assemble_finetune(section.finetune, findings);
  if (recipe.optimizer_operators.launches > 0 && recipe.optimizer_operators.accesses == 0)
    findings.error("/training/optimizer/launches",
                   "an optimizer that is one kernel has no operators to launch",
                   "remove it, or say their accesses");
  assemble_recompute(recipe, section, findings);
  // PyTorch and cuDNN run convolution, normalisation and activation one after the other unless the
  // script is compiled.
  recipe.kernels.fusion = section.execution.value_or(
      stack_of(network) != nullptr ? models::Fusion::by_hand : models::Fusion::eager);
  recipe.precision.kept_fp8_inputs.otherwise(recipe.precision.compute == models::Dtype::fp8 &&
                                             recipe.kernels.fusion == models::Fusion::by_hand);
  if (recipe.precision.compute == models::Dtype::fp8 && !recipe.precision.fp8_recipe) {
    recipe.precision.fp8_recipe = recipe.kernels.fusion == models::Fusion::by_hand
                                      ? models::Fp8Recipe::delayed
                                      : models::Fp8Recipe::current;
  }
  recipe.kernels.attention = assemble_attention(recipe.kernels.attention, gpu, findings);
  check_kernels(recipe, network, findings);
  recipe.accumulation.otherwise(recipe.kernels.fusion == models::Fusion::by_hand
                                    ? Accumulation::product
                                    : Accumulation::autograd);
  check_accumulation(recipe, network, findings);
  recipe.memory = assemble_memory(recipe.memory, gpu);
  return recipe;
}

}  // namespace trainyard::scenario
