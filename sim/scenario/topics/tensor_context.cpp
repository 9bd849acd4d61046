// /parallelism/tensor_parallel and context_parallel: their tables, and what they ask of the machine
// and the network.
#include <fmt/format.h>

#include "models/transformer/networks.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::models {

namespace {

constexpr std::array<json::Choice<TensorOverlap>, 3> kTensorOverlaps = {
    {{"none", TensorOverlap::none},
     {"weight_gradient", TensorOverlap::weight_gradient},
     {"chunked", TensorOverlap::chunked}}};
constexpr std::array<json::Choice<ContextMethod>, 3> kContextMethods = {
    {{"ring", ContextMethod::ring},
     {"all_gather", ContextMethod::all_gather},
     {"ulysses", ContextMethod::ulysses}}};

}  // namespace

void visit_fields(json::Fields& f, TensorParallel& s) {
  f.choice("overlap", s.overlap, kTensorOverlaps, json::optional,
           "What collectives hide behind: none; weight_gradient (backward, the GEMM that does not "
           "need them); chunked (also their own GEMM, in pieces).");
  f.field("chunks", s.chunks, json::between(1, 1024),
          "chunked: pieces of each GEMM and of its collective. Default, as Transformer Engine: "
          "gathers in a ring of tp pieces, scatters in 4.");
  f.field("keep_gathered_inputs", s.keep_gathered_inputs, json::optional,
          "Sequence parallelism: what was gathered for qkv, fc1 and the logits stays for their "
          "weight gradients; false gathers a kept shard again.");
  f.field("gather_per_projection", s.gather_per_projection, json::optional,
          "Separate projections of one input (training/projections, gate_projection) gather it and "
          "reduce its gradient each, as Megatron-LM's column-parallel layers; false: once for all, "
          "as torchtitan.");
  f.field("gather_logits", s.gather_logits, json::optional,
          "Every rank gathers the logits of the whole vocabulary and computes all of the loss.");
}

void visit_fields(json::Fields& f, ContextParallel& s) {
  f.choice(
      "method", s.method, kContextMethods, json::optional,
      "How attention sees tokens of other ranks: ring (hop by hop under attention), all_gather "
      "(keys and values first), ulysses (all-to-all over heads).");
}

}  // namespace trainyard::models

namespace trainyard::scenario {

namespace {

// What is chosen for a group of one rank.
void check_chosen_for_nothing(const Scenario& scenario, Findings& findings) {
  const auto check = [&](const char* pointer, const char* degree, int ranks) {
    if (ranks == 1 && json::find(scenario.document, pointer) != nullptr)
      findings.warning(pointer, fmt::format("means nothing: {} is 1", degree), "remove it");
  };
  check("/parallelism/context_parallel/method", "cp", scenario.plan.degrees.context);
  check("/parallelism/tensor_parallel/overlap", "tp", scenario.plan.degrees.tensor);
}

// Layers in which the input of each column-split product is the output of a norm before it.
bool reads_norms_alone(const models::Network& network) {
  const auto* decoder = network.find<models::Transformer>();
  return decoder != nullptr && !decoder->post_norm && decoder->moe.experts == 0 &&
         !decoder->latent.used() && !decoder->parallel() &&
         decoder->block_norms == models::BlockNorms::before;
}

void check_gathered_inputs(const Scenario& scenario, Findings& findings) {
  const models::TensorParallel& chosen = scenario.plan.tensor_parallel;
  if (!chosen.keep_gathered_inputs) return;
  const char* pointer = "/parallelism/tensor_parallel/keep_gathered_inputs";
  const models::Recompute form = scenario.recipe.recompute.form;
  if (!chosen.sequence)
    findings.error(pointer, "nothing is gathered without sequence parallelism",
                   "set sequence_parallel, or remove it");
  else if (chosen.overlap == models::TensorOverlap::chunked)
    findings.error(pointer, "chunked gathers into buffers that all layers share",
                   "use weight_gradient or none, or remove it");
  else if (!reads_norms_alone(scenario.network))
    findings.error(pointer, "it is described for decoders of dense layers with a norm before each",
                   "remove it");
  else if (form == models::Recompute::modules || form == models::Recompute::operators)
    findings.error(
        pointer,
        fmt::format("whether recomputation by {} keeps what is gathered is not described",
                    name(form)),
        "recompute none, selective or full, or remove it");
}

void check_gathered_logits(const Scenario& scenario, Findings& findings) {
  if (!scenario.plan.tensor_parallel.gather_logits) return;
  const char* pointer = "/parallelism/tensor_parallel/gather_logits";
  if (scenario.plan.degrees.tensor == 1)
    findings.error(pointer, "tp is 1: no rank holds a part of the logits", "raise tp or remove it");
  else if (scenario.network.find<models::Transformer>() == nullptr)
    findings.error(pointer, "it is described for decoders", "remove it");
}

void check_gathers(const Scenario& scenario, Findings& findings) {
  if (!scenario.plan.tensor_parallel.gather_per_projection) return;
  const char* pointer = "/parallelism/tensor_parallel/gather_per_projection";
  const models::KernelChoice& kernels = scenario.recipe.kernels;
  if (scenario.plan.degrees.tensor == 1)
    findings.error(pointer, "tp is 1: nothing is gathered", "raise tp or remove it");
  else if (!kernels.separate_projections && !kernels.separate_gate)
    findings.error(pointer, "one projection reads each input",
                   "set training/projections or training/gate_projection to \"separate\", or "
                   "remove it");
}

}  // namespace

void validate_tensor_parallel(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelPlan& plan = scenario.plan;
  const recipe::ParallelDegrees& degrees = plan.degrees;
  const int per_server = fewest_gpus_in_use(scenario.cluster);
  check_chosen_for_nothing(scenario, findings);
  check_gathered_inputs(scenario, findings);
  check_gathered_logits(scenario, findings);
  check_gathers(scenario, findings);
  if (plan.tensor_parallel.sequence && degrees.tensor == 1)
    findings.error("/parallelism/sequence_parallel",
                   "sequence parallelism divides what tensor parallelism leaves whole, and tp is 1",
                   "raise tp or remove it");
  if (plan.tensor_parallel.overlap == models::TensorOverlap::chunked &&
      !plan.tensor_parallel.sequence)
    findings.error("/parallelism/tensor_parallel/overlap",
                   "chunked cuts all-gathers and reduce-scatters, and without sequence parallelism "
                   "there are none",
                   "set sequence_parallel, or use weight_gradient");
  if (plan.tensor_parallel.overlap != models::TensorOverlap::chunked &&
      plan.tensor_parallel.chunks > 0)
    findings.error("/parallelism/tensor_parallel/chunks",
                   "nothing is cut in chunks unless overlap is chunked",
                   "set overlap to \"chunked\", or remove it");
  if (degrees.context > 1 && degrees.tensor * degrees.context > 2 * per_server &&
      plan.context_parallel.method == models::ContextMethod::ulysses)
    findings.warning("/parallelism/cp",
                     fmt::format("tp {} x cp {} spans servers of {} GPUs: ulysses exchanges all "
                                 "heads across the network in every layer",
                                 degrees.tensor, degrees.context, per_server));
  if (degrees.tensor > per_server)
    findings.warning(
        "/parallelism/tp",
        fmt::format("tp {} spans servers of {} GPUs: its collectives cross the network "
                    "in every layer",
                    degrees.tensor, per_server));
  const models::Transformer* transformer = stack_of(scenario.network);
  if (transformer == nullptr || !reads_tokens(scenario.network)) return;
  const std::int64_t rest = transformer->vocabulary % degrees.tensor;
  if (rest != 0)
    findings.warning(
        "/model/vocab",
        fmt::format("{} is padded to {} to divide it by tp {}", transformer->vocabulary,
                    transformer->vocabulary + degrees.tensor - rest, degrees.tensor));
}

}  // namespace trainyard::scenario
