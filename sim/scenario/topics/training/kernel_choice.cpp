// The kernels of a layer in /training: their choices, and which a network and an execution have.
#include <fmt/format.h>

#include <algorithm>

#include "models/layers/layer_table.h"
#include "models/transformer/networks.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::models {

namespace {

constexpr std::array<json::Choice<AttentionKernel>, 9> kAttention = {
    {{"false", AttentionKernel::unfused},
     {"true", AttentionKernel::usual},
     {"unfused", AttentionKernel::unfused},
     {"sdpa_math", AttentionKernel::sdpa_math},
     {"fa1", AttentionKernel::fa1},
     {"triton", AttentionKernel::triton},
     {"fa2", AttentionKernel::fa2},
     {"fa3", AttentionKernel::fa3},
     {"cudnn", AttentionKernel::cudnn}}};
constexpr std::array<json::Choice<ImageLayout>, 2> kImageLayouts = {
    {{"nhwc", ImageLayout::nhwc}, {"nchw", ImageLayout::nchw}}};
constexpr std::array<json::Choice<bool>, 2> kByOperators = {
    {{"kernel", false}, {"operators", true}}};
constexpr std::array<json::Choice<bool>, 2> kNormInputs = {{{"stored", false}, {"fp32", true}}};
constexpr std::array<json::Choice<bool>, 2> kRotary = {{{"operators", false}, {"kernel", true}}};
constexpr std::array<json::Choice<SoftmaxKernels>, 3> kSoftmaxes = {
    {{"kernel", SoftmaxKernels::kernel},
     {"operators", SoftmaxKernels::operators},
     {"fp32", SoftmaxKernels::fp32}}};
constexpr std::array<json::Choice<bool>, 2> kUnalignedHeads = {
    {{"tensor_cores", false}, {"cuda_cores", true}}};
constexpr std::array<json::Choice<bool>, 2> kExpertWeights = {
    {{"combination", false}, {"activation", true}}};
constexpr std::array<json::Choice<Placeholders>, 3> kPlaceholders = {
    {{"none", Placeholders::none},
     {"dropped", Placeholders::dropped},
     {"kept", Placeholders::kept}}};
constexpr std::array<json::Choice<bool>, 2> kExpertBiases = {
    {{"product", false}, {"operators", true}}};
constexpr std::array<json::Choice<bool>, 2> kBiases = {{{"product", false}, {"kernel", true}}};
constexpr std::array<json::Choice<bool>, 2> kKeyValueHeads = {
    {{"grouped", false}, {"repeated", true}}};
constexpr std::array<json::Choice<bool>, 2> kProjections = {{{"joint", false}, {"separate", true}}};
constexpr std::array<json::Choice<bool>, 2> kBroadcasts = {
    {{"one_by_one", false}, {"vectors", true}}};
constexpr std::array<json::Choice<bool>, 2> kBatchNorms = {{{"kernel", false}, {"fused", true}}};
constexpr std::array<json::Choice<models::LossKernels>, 4> kLosses = {
    {{"eager", models::LossKernels::eager},
     {"parallel", models::LossKernels::by_hand},
     {"compiled", models::LossKernels::compiled},
     {"in_place", models::LossKernels::in_place}}};

constexpr std::array<json::Choice<bool>, 2> kNormScales = {{{"copy", false}, {"input", true}}};

void visit_norms(json::Fields& f, KernelChoice& s) {
  f.choice(
      "norm", s.norms_by_operators, kByOperators, json::optional,
      "Norms of an eager execution: kernel, one for each pass; operators, an RMSNorm as Hugging "
      "Face's LlamaRMSNorm, which squares, averages and scales an fp32 copy by plain "
      "operators, a LayerNorm as TensorFlow 1's.");
  f.choice("norm_scales", s.norms_scale_input, kNormScales,
           "What an RMSNorm by operators scales: copy, the fp32 one of which it takes squares, as "
           "Llama's of Hugging Face; input, as T5's, which is kept beside it. Default: input with "
           "relative positions, else copy.");
  f.choice("norm_inputs", s.norms_read_fp32, kNormInputs, json::optional,
           "What the norms of a fused execution read: what is stored, or an fp32 copy of it, whose "
           "gradient is cast back (InternEvo).");
}

// Of experts.
void visit_expert_kernels(json::Fields& f, KernelChoice& s) {
  f.choice("expert_products", s.separate_experts, kProjections, json::optional,
           "Products of a rank's experts: joint, one launch for all, or separate, one for each "
           "expert, as in Transformer Engine's grouped linear layers; of an eager execution, all "
           "that is done for them in a loop, as in transformers before 5, with ep what is done to "
           "rows that have arrived.");
  f.choice("expert_weights", s.rows_weighted_in_activation, kExpertWeights, json::optional,
           "Where rows of experts are weighted by the router: combination, which keeps what it "
           "adds up for the backward pass, or activation, as in Megatron-Core since 0.13.");
  f.choice("expert_biases", s.expert_biases_by_operators, kExpertBiases, json::optional,
           "Biases of experts, but of an eager execution, which adds them by operators of its own: "
           "product, their products add them; operators, those of the second "
           "are weighted by the router and added an expert at a time by plain operators, as in "
           "Megatron-Core.");
  f.choice("expert_clamps", s.expert_clamps_by_operators, kByOperators, json::optional,
           "Limits of what experts' activations read (model.moe.clamped), but of an eager "
           "execution, which has operators of its own: kernel, that of the "
           "activation keeps them; operators, plain ones before it, as in Megatron-Core.");
}

}  // namespace

void visit_fields(json::Fields& f, KernelChoice& s) {
  f.choice("fused_attention", s.attention, kAttention, json::optional,
           "Whose kernel computes attention: unfused (false) and sdpa_math (PyTorch's plain "
           "operators) keep the scores in memory, the others do not. true: what frameworks take "
           "on the GPU, fa2 before Hopper and cudnn from it on.");
  f.choice("loss", s.loss, kLosses,
           "Kernels and memory of logits and loss where they differ from the layers': eager, as "
           "when only layers are compiled, compiled, or parallel, Megatron-LM's over a vocabulary "
           "that ranks may share; beside fused layers that one, compiled, as Megatron-"
           "LM's --cross-entropy-loss-fusion, or in_place, Transformer Engine's kernel, which "
           "leaves the gradient where the logits were. Default: as execution.");
  visit_norms(f, s);
  f.choice(
      "activation", s.activations_by_operators, kByOperators, json::optional,
      "GELU of an eager execution: kernel, one for each pass; operators, as BERT in TensorFlow "
      "1, which takes a cube and a tanh of every element by plain operators.");
  f.choice("dropout", s.dropout_by_operators, kByOperators, json::optional,
           "Dropout of an eager execution: kernel, one for each pass; operators, as TensorFlow 1, "
           "which draws, rounds and multiplies random numbers by plain operators.");
  f.choice("rotary", s.rotary_by_kernel, kRotary,
           "Rotary embeddings: operators, as Llama's and Hugging Face's scripts multiply, rotate "
           "and add queries and keys, and Megatron-LM without rope fusion or with YaRN's "
           "magnitudes; kernel, one for both. Default: operators if eager, else kernel.");
  f.choice("bias", s.bias_by_kernel, kBiases, json::optional,
           "What adds the biases of linear layers in an eager execution: their product, or a "
           "kernel behind it, as in PyTorch before 1.12 and TensorFlow 1.");
  f.choice("projections", s.separate_projections, kProjections, json::optional,
           "Queries, keys and values in an execution that is not fused: of one product (joint), "
           "or separate, of one each, as in BERT's and Llama's own scripts.");
  f.choice("key_value_heads", s.repeated_key_values, kKeyValueHeads, json::optional,
           "Keys and values of an attention kernel in an execution that is not fused: grouped, one "
           "for all query heads that share it, or repeated, a copy for each, as in Llama's own "
           "script (repeat_kv).");
  f.choice("gate_projection", s.separate_gate, kProjections, json::optional,
           "Gate and up projection of a gated feed-forward layer: of one product (joint), or "
           "separate, of one each, as in Llama's own scripts.");
  f.choice("softmax", s.softmax, kSoftmaxes,
           "What makes weights of unfused attention's scores: kernel, one that scales, masks and "
           "normalises, as Megatron-LM's masked-softmax fusion; operators, a kernel each; fp32, "
           "operators whose softmax is of fp32 copies, cast back for the product behind it, as in "
           "Hugging Face's Llama and T5 and under autocast. Default: operators if eager, fp32 if "
           "autocast, else kernel.");
  f.choice("unaligned_heads", s.unaligned_heads_in_fp32, kUnalignedHeads, json::optional,
           "Cores on which unfused attention multiplies heads whose numbers are no multiple of 16 "
           "bytes; cuda_cores: in fp32, as libraries of 2022 did.");
  f.choice("gradient_placeholders", s.placeholders, kPlaceholders, json::optional,
           "What products that add to gradients give autograd in place of one: none, an array that "
           "is dropped after each product (Transformer Engine before 2.3), or one of each shape of "
           "a layer's weights, which is kept. In the type of the products; the output matrix drops "
           "its own either way.");
  visit_expert_kernels(f, s);
  f.choice("broadcasts", s.broadcasts_in_vectors, kBroadcasts, json::optional,
           "How copies of heads, masks and biases of an eager execution handle operands that are "
           "permuted or broadcast: one_by_one, as PyTorch and TensorFlow do, or in vectors.");
  f.choice("image_layout", s.images, kImageLayouts, json::optional,
           "How networks of images store them: nhwc (channels last), or nchw, which tensor cores "
           "want copied and 16-bit batch norms are slower in.");
  f.choice("batch_norm", s.fused_batch_norms, kBatchNorms, json::optional,
           "Batch norms of networks of images in 16 bits and nhwc: kernel, one for each pass; "
           "fused, with the ReLU behind it, or the addition and the ReLU (cuDNN's, in MXNet and "
           "PaddlePaddle).");
}

}  // namespace trainyard::models

namespace trainyard::scenario {
namespace {

void check_norm_inputs(const models::KernelChoice& kernels, const models::Network& network,
                       Findings& findings) {
  if (!kernels.norms_read_fp32) return;
  if (stack_of(network) == nullptr || kernels.fusion != models::Fusion::by_hand)
    findings.error("/training/norm_inputs",
                   "fp32 copies are described of the norms of a transformer's \"fused\" execution",
                   "remove it");
}

void check_operators(const models::KernelChoice& kernels, const models::Network& network,
                     Findings& findings) {
  const auto check = [&](const char* key, const char* what, bool by_operators) {
    if (!by_operators) return;
    if (kernels.fusion != models::Fusion::eager)
      findings.error(fmt::format("/training/{}", key),
                     fmt::format("only an eager execution runs {} by their operators", what),
                     "remove it, or make the execution \"eager\"");
    if (stack_of(network) == nullptr)
      findings.error(fmt::format("/training/{}", key),
                     fmt::format("only {} of transformers run by operators, and it is {}", what,
                                 network.words()),
                     "remove it");
  };
  check("norm", "norms", kernels.norms_by_operators);
  const models::Transformer* stack = stack_of(network);
  if (kernels.norms_scale_input &&
      (!kernels.norms_by_operators || stack == nullptr || stack->norm != models::Norm::rms_norm))
    findings.error("/training/norm_scales", "no RMSNorm runs by operators",
                   "remove it, or make norm \"operators\"");
  check("activation", "activations", kernels.activations_by_operators);
  check("dropout", "dropout", kernels.dropout_by_operators);
  if (!kernels.rotary_by_kernel) return;
  if (kernels.fusion == models::Fusion::compiled && !*kernels.rotary_by_kernel)
    findings.error("/training/rotary", "torch.compile makes one kernel of rotary embeddings",
                   "remove it, or make the execution \"eager\" or \"fused\"");
  if (stack == nullptr || stack->positional != models::Positional::rope)
    findings.error("/training/rotary", "the network has no rotary embeddings", "remove it");
  else if (stack->latent.used() && !*kernels.rotary_by_kernel &&
           kernels.fusion == models::Fusion::by_hand)
    findings.error("/training/rotary",
                   "those of latent attention are described as one kernel of a fused execution",
                   "remove it, or make the execution \"eager\"");
}

void check_softmax(const recipe::TrainingRecipe& recipe, const models::Network& network,
                   Findings& findings) {
  using models::SoftmaxKernels;
  const models::KernelChoice& kernels = recipe.kernels;
  if (!kernels.softmax) return;
  const auto error = [&](const std::string& what, const char* cure) {
    findings.error("/training/softmax", what, cure);
  };
  if (stack_of(network) == nullptr)
    return error(fmt::format("{} has no attention", network.words()), "remove it");
  if (kernels.one_attention())
    return error("attention is one kernel, whose softmax is its own",
                 "remove it, or set fused_attention to false");
  if (kernels.fusion == models::Fusion::compiled && *kernels.softmax != SoftmaxKernels::kernel)
    error("torch.compile makes one kernel of scale, mask and softmax",
          "remove it, or make the execution \"eager\" or \"fused\"");
  if (recipe.precision.autocasts() && *kernels.softmax != SoftmaxKernels::fp32)
    error("torch.autocast takes softmaxes in fp32", "remove it");
}

void check_linear_layers(const models::KernelChoice& kernels, const models::Network& network,
                         Findings& findings) {
  if (kernels.bias_by_kernel && kernels.fusion != models::Fusion::eager)
    findings.error("/training/bias", "only an eager execution has kernels for biases",
                   "remove it, or make the execution \"eager\"");
  if (kernels.bias_by_kernel && stack_of(network) == nullptr)
    findings.error(
        "/training/bias",
        fmt::format("only biases of transformers are counted, and it is {}", network.words()),
        "remove it");
  if (kernels.broadcasts_in_vectors &&
      (kernels.fusion != models::Fusion::eager || stack_of(network) == nullptr))
    findings.error("/training/broadcasts",
                   "only a transformer's eager execution has kernels of broadcast operands",
                   "remove it");
  if (kernels.placeholders != models::Placeholders::none &&
      (kernels.fusion != models::Fusion::by_hand || stack_of(network) == nullptr))
    findings.error("/training/gradient_placeholders",
                   "only products of a transformer's fused execution add to gradients",
                   "remove it, or make the execution \"fused\"");
  const models::Transformer* stack = stack_of(network);
  if (kernels.separate_experts && (stack == nullptr || stack->moe.experts == 0))
    findings.error("/training/expert_products", fmt::format("{} has no experts", network.words()),
                   "remove it");
  if (kernels.rows_weighted_in_activation && (stack == nullptr || stack->moe.experts == 0))
    findings.error("/training/expert_weights", fmt::format("{} has no experts", network.words()),
                   "remove it");
  const auto check_not_eager = [&](const char* pointer, const char* what, bool said) {
    if (said && kernels.fusion == models::Fusion::eager)
      findings.error(pointer, fmt::format("an eager execution {}", what),
                     "remove it, or make the execution \"fused\" or \"compiled\"");
  };
  check_not_eager("/training/expert_weights", "weights rows by a kernel",
                  kernels.rows_weighted_in_activation);
  check_not_eager("/training/expert_biases", "adds biases by operators of its own",
                  kernels.expert_biases_by_operators);
  check_not_eager("/training/expert_clamps", "has operators of its own for limits",
                  kernels.expert_clamps_by_operators);
  if (kernels.expert_biases_by_operators && (stack == nullptr || !stack->moe.biases))
    findings.error("/training/expert_biases", "the network's experts have no biases", "remove it");
  if (kernels.unaligned_heads_in_fp32 && (stack == nullptr || kernels.one_attention()))
    findings.error("/training/unaligned_heads", "no attention multiplies heads by themselves",
                   "remove it, or make fused_attention false");
  if (kernels.expert_clamps_by_operators && (stack == nullptr || !stack->moe.clamped))
    findings.error("/training/expert_clamps", "the network's experts keep no limits", "remove it");
  const auto check_apart = [&](const char* pointer, const char* what, bool has, const char* joint) {
    if (joint != nullptr && kernels.fusion == models::Fusion::by_hand)
      findings.error(pointer, fmt::format("Megatron-LM's kernels take {} {}", what, joint),
                     "remove it, or make the execution \"eager\" or \"compiled\"");
    if (!has)
      findings.error(pointer, fmt::format("{} has no {}", network.words(), what), "remove it");
  };
  if (kernels.separate_projections)
    check_apart("/training/projections", "queries, keys and values", stack != nullptr,
                "of one product");
  if (kernels.repeated_key_values)
    check_apart("/training/key_value_heads", "keys and values", stack != nullptr,
                "of a group once");
  if (kernels.separate_gate)
    check_apart("/training/gate_projection", "gate and up projection",
                stack != nullptr && stack->gated(), nullptr);
}

bool has_batch_norms(const models::Network& network) {
  const auto* table = network.find<models::LayerNetwork>();
  return table != nullptr &&
         std::any_of(table->operations.begin(), table->operations.end(), [](const auto& operation) {
           return operation.row.op == models::TableOp::batch_norm;
         });
}

// Source: NVIDIA, cuDNN API, cudnnBatchNormOps_t: NHWC and 16 bits are required.
void check_batch_norms(const recipe::TrainingRecipe& recipe, const models::Network& network,
                       Findings& findings) {
  const char* pointer = "/training/batch_norm";
  const models::Dtype compute = recipe.precision.compute;
  if (!recipe.kernels.fused_batch_norms) return;
  if (!has_batch_norms(network))
    findings.error(pointer, fmt::format("{} has no batch norms", network.words()), "remove it");
  else if (recipe.kernels.images == models::ImageLayout::nchw)
    findings.error(pointer, "no kernel fuses the batch norms of images stored channel by channel",
                   "make image_layout \"nhwc\", or remove it");
  else if (compute == models::Dtype::fp32 || compute == models::Dtype::tf32)
    findings.error(pointer, fmt::format("no kernel fuses batch norms in {}", name(compute)),
                   "compute in \"fp16\" or \"bf16\", or remove it");
}

}  // namespace

void check_kernels(const recipe::TrainingRecipe& recipe, const models::Network& network,
                   Findings& findings) {
  const models::KernelChoice& kernels = recipe.kernels;
  const bool is_language = reads_tokens(network);
  const bool has_attention = stack_of(network) != nullptr;
  if (kernels.loss == models::LossKernels::in_place && kernels.fusion != models::Fusion::by_hand)
    findings.error("/training/loss", "only beside a \"fused\" execution it is described in place",
                   "remove it, or make the execution \"fused\"");
  if (kernels.loss == models::LossKernels::eager && kernels.fusion == models::Fusion::by_hand)
    findings.error("/training/loss",
                   "beside a \"fused\" execution the loss is Megatron-LM's, \"parallel\" or "
                   "\"compiled\"",
                   "remove it, or make the execution \"eager\" or \"compiled\"");
  const bool fused_loss = kernels.fusion == models::Fusion::by_hand
                              ? kernels.loss && kernels.loss != models::LossKernels::eager
                              : kernels.loss == models::LossKernels::by_hand;
  if (fused_loss && network.is<models::Encoder>())
    findings.error("/training/loss", "a masked-language loss has one set of fused kernels",
                   "remove it, or make it or the execution \"eager\" or \"compiled\"");
  if (kernels.loss && !is_language)
    findings.error("/training/loss", "only losses over a vocabulary have a choice of it",
                   "remove it");
  check_norm_inputs(kernels, network, findings);
  check_operators(kernels, network, findings);
  check_softmax(recipe, network, findings);
  check_linear_layers(kernels, network, findings);
  if (!has_attention && kernels.fusion == models::Fusion::by_hand)
    findings.error("/training/execution",
                   fmt::format("fused are the kernels of Megatron-LM, and it has none for {}",
                               network.words()),
                   "remove it: \"eager\" is what runs");
  if (!has_attention && kernels.fusion == models::Fusion::compiled)
    findings.error("/training/execution",
                   fmt::format("what torch.compile makes of {} is not described", network.words()),
                   "\"eager\" is");
  if (has_attention && kernels.images == models::ImageLayout::nchw)
    findings.error("/training/image_layout",
                   fmt::format("{} stores no images between its kernels", network.words()),
                   "remove it");
  if (!has_attention && kernels.one_attention())
    findings.error("/training/fused_attention", fmt::format("{} has no attention", network.words()),
                   "remove it");
  check_batch_norms(recipe, network, findings);
}

}  // namespace trainyard::scenario
