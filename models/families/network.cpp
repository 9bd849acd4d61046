#include "models/families/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "models/convolutional/convolutional.h"
#include "models/layer/work_list.h"
#include "models/recommender/recommender_work.h"
#include "models/transformer/encoder.h"
#include "models/transformer/encoder_decoder.h"
#include "models/transformer/transformer.h"
#include "models/transformer/vision.h"
#include "sim/base/check.h"

namespace trainyard::models {
namespace {

using Problems = std::vector<ExecutionProblem>;

void must_be_positive(Problems& problems, const char* member, const char* what,
                      std::int64_t value) {
  if (value < 1) problems.push_back({member, fmt::format("{} ({}) must be positive", what, value)});
}

void must_divide(Problems& problems, const char* member, const char* what, std::int64_t value,
                 std::int64_t degree) {
  if (value % degree == 0) return;
  problems.push_back(
      {member, fmt::format("{} ({}) must be divisible by the tensor-parallel degree ({})", what,
                           value, degree)});
}

// Every product that the layers form stays below 2^62. In floating point, so that the test itself
// cannot overflow.
void must_be_countable(Problems& problems, const Transformer& n, const Execution& e) {
  const auto tokens =
      static_cast<double>(e.micro_batch.size) * static_cast<double>(e.micro_batch.sequence_length);
  const double columns = static_cast<double>(n.hidden) +
                         3 * static_cast<double>(n.heads) * static_cast<double>(n.head_size) +
                         3 * static_cast<double>(n.ffn_hidden) + static_cast<double>(n.vocabulary);
  const double scores =
      tokens * static_cast<double>(n.heads) * static_cast<double>(e.micro_batch.sequence_length);
  const double rows =
      static_cast<double>(n.max_positions) + static_cast<double>(e.micro_batch.sequence_length);
  const double experts =
      3 * static_cast<double>(n.moe.experts) * static_cast<double>(n.moe.ffn_hidden) +
      3 * static_cast<double>(n.moe.shared_ffn_hidden);
  const double parameters =
      static_cast<double>(n.layers) * static_cast<double>(n.hidden) * (columns + experts + rows);
  const double routed = tokens * static_cast<double>(n.moe.top_k) *
                        std::max(1.0, e.experts.capacity.value()) *
                        (static_cast<double>(n.hidden) + 3 * static_cast<double>(n.moe.ffn_hidden));
  for (const double count : {16 * tokens * columns, 16 * scores, 16 * parameters, 16 * routed}) {
    if (count < 0x1p62) continue;
    problems.push_back({"",
                        "the sizes of the network and of the micro-batch multiply to more than "
                        "2^62 bytes"});
    return;
  }
}

void check_experts(Problems& problems, const Transformer& n, const Execution& e) {
  if (n.moe.experts == 0) {
    if (e.experts.ranks > 1) problems.push_back({"expert", "the network has no experts to deal"});
    return;
  }
  must_be_positive(problems, "", "the feed-forward size of an expert", n.moe.ffn_hidden);
  if (n.moe.top_k < 1 || n.moe.top_k > n.moe.experts) {
    problems.push_back({"", fmt::format("top_k ({}) must be from 1 to the number of experts ({})",
                                        n.moe.top_k, n.moe.experts)});
  }
  if (e.experts.ranks < 1 || n.moe.experts % e.experts.ranks != 0) {
    problems.push_back(
        {"expert", fmt::format("experts ({}) must be divisible by the expert-parallel degree ({})",
                               n.moe.experts, e.experts.ranks)});
  }
  if (n.moe.ffn_hidden % e.experts.tensor != 0) {
    problems.push_back(
        {"expert_tensor",
         fmt::format("the feed-forward size of an expert ({}) must be divisible by the expert "
                     "tensor-parallel degree ({})",
                     n.moe.ffn_hidden, e.experts.tensor.value())});
  }
  must_divide(problems, "tensor", "the feed-forward size of the shared experts",
              n.moe.shared_ffn_hidden, e.tensor);
  if (e.tensor > 1 && !e.tensor_parallel.sequence) {
    problems.push_back({"sequence_parallel",
                        "experts behind tensor parallelism need sequence parallelism: without it "
                        "every tensor-parallel rank would send the same tokens"});
  }
}

void check_latent(Problems& problems, const Transformer& n, const Execution& e) {
  if (!n.latent.used()) return;
  must_be_positive(problems, "", "the position-free part of a head", n.latent.nope_size);
  must_be_positive(problems, "", "the rotated part of a head", n.latent.rope_size);
  must_be_positive(problems, "", "the head size of values", n.latent.value_size);
  if (!e.kernels.fused_attention) {
    problems.push_back({"fused_attention",
                        "latent attention has heads of two sizes, which only fused attention has"});
  }
}

void check_context(Problems& problems, const Transformer& n, const Execution& e) {
  if (e.context == 1) return;
  if (!e.kernels.fused_attention) {
    problems.push_back({"fused_attention",
                        "context parallelism divides fused attention; unfused attention has all "
                        "scores of a sequence on one rank"});
  }
  if (n.causal && e.micro_batch.sequence_length % (2 * std::int64_t{e.context}) != 0) {
    problems.push_back(
        {"sequence_length",
         fmt::format("the sequence length ({}) must be divisible by twice the context-parallel "
                     "degree ({}): every rank takes an early and a late chunk",
                     e.micro_batch.sequence_length, e.context)});
  } else if (e.micro_batch.sequence_length % e.context != 0) {
    problems.push_back({"sequence_length", fmt::format("the sequence length ({}) must be divisible "
                                                       "by the context-parallel degree ({})",
                                                       e.micro_batch.sequence_length, e.context)});
  }
  if (e.context_parallel.method != ContextMethod::ulysses) return;
  for (const auto& [what, heads] :
       {std::pair{"attention heads", n.heads}, std::pair{"key/value heads", n.kv_heads}}) {
    if (heads % (std::int64_t{e.tensor} * e.context) == 0) continue;
    problems.push_back(
        {"context",
         fmt::format("{} ({}) must be divisible by the tensor-parallel degree ({}) times "
                     "the context-parallel degree ({}): ulysses deals heads",
                     what, heads, e.tensor, e.context)});
  }
}

bool names(const Execution& e, RecomputeModule module) {
  return e.recompute.form == Recompute::modules && e.recompute.modules.has(module);
}

// Requires: no problems so far, so that layers can be built.
void check_recompute(Problems& problems, const Transformer& n, const Execution& e) {
  using M = RecomputeModule;
  if (e.recompute.form == Recompute::operators && e.kernels.fusion == Fusion::by_hand) {
    problems.push_back({"recompute",
                        "selective_op chooses among PyTorch's operators; the execution is "
                        "\"fused\", make it \"eager\" or \"compiled\""});
  }
  bool has_dense = false, has_mixture = false;
  for (std::int64_t layer = 0; layer < n.layers; ++layer)
    (n.is_mixture(layer) ? has_mixture : has_dense) = true;
  for (const M module : {M::core_attn, M::mlp, M::moe, M::moe_act, M::shared_experts, M::layernorm,
                         M::mla_up_proj}) {
    if (!names(e, module)) continue;
    const bool found = (has_dense && has_module(transformer_script(n, e, false), module)) ||
                       (has_mixture && has_module(transformer_script(n, e, true), module));
    if (!found)
      problems.push_back({"recompute", fmt::format("no layer has a module {}", name(module))});
  }
  for (const M module : {M::moe_act, M::shared_experts}) {
    if (names(e, M::moe) && names(e, module))
      problems.push_back(
          {"recompute", fmt::format("{} is a part of moe, which recomputes it", name(module))});
  }
}

// Each piece has as many tokens from every rank of the group.
void check_pieces(Problems& problems, const Execution& e) {
  if (e.tensor_parallel.overlap != TensorOverlap::chunked || !e.tensor_parallel.sequence) return;
  const std::int64_t pieces = pieces_of_rows(e);
  const std::int64_t tokens =
      e.micro_batch.size * e.micro_batch.sequence_length / e.context / e.tensor;
  if (tokens % pieces == 0) return;
  problems.push_back({"tensor_chunks",
                      fmt::format("the {} tokens of a tensor-parallel rank are not divisible into "
                                  "{} chunks",
                                  tokens, pieces)});
}

void check(Problems& problems, const Transformer& n, const Execution& e) {
  must_be_positive(problems, "", "layers", n.layers);
  must_be_positive(problems, "", "hidden size", n.hidden);
  must_be_positive(problems, "", "attention heads", n.heads);
  must_be_positive(problems, "", "key/value heads", n.kv_heads);
  must_be_positive(problems, "", "head size", n.head_size);
  must_be_positive(problems, "", "feed-forward size", n.ffn_hidden);
  must_be_positive(problems, "", "vocabulary", n.vocabulary);
  must_be_positive(problems, "sequence_length", "sequence length", e.micro_batch.sequence_length);
  if (!problems.empty()) return;

  must_be_countable(problems, n, e);
  if (n.heads % n.kv_heads != 0) {
    problems.push_back(
        {"", fmt::format("attention heads ({}) must be divisible by key/value heads ({})", n.heads,
                         n.kv_heads)});
  }
  must_divide(problems, "tensor", "attention heads", n.heads, e.tensor);
  must_divide(problems, "tensor", "key/value heads", n.kv_heads, e.tensor);
  must_divide(problems, "tensor", "the feed-forward size", n.ffn_hidden, e.tensor);
  if (e.tensor_parallel.sequence &&
      e.micro_batch.sequence_length % (std::int64_t{e.context} * e.tensor) != 0) {
    problems.push_back(
        {"sequence_length",
         fmt::format(
             "with sequence parallelism the sequence length ({}) must be divisible by the "
             "{}tensor-parallel degree ({})",
             e.micro_batch.sequence_length,
             e.context > 1 ? fmt::format("context-parallel ({}) times the ", e.context) : "",
             e.tensor)});
  }
  check_pieces(problems, e);
  check_context(problems, n, e);
  check_experts(problems, n, e);
  if (e.kernels.fusion != Fusion::by_hand && (n.moe.experts > 0 || n.latent.used())) {
    problems.push_back({"fusion",
                        "experts and latent attention are described with fused kernels only; leave "
                        "the execution \"fused\""});
  }
  check_latent(problems, n, e);
  if (n.positional == Positional::learned && n.max_positions > 0 &&
      e.micro_batch.sequence_length > n.max_positions) {
    problems.push_back(
        {"sequence_length", fmt::format("the sequence length ({}) exceeds the {} learned positions",
                                        e.micro_batch.sequence_length, n.max_positions)});
  }
  if (problems.empty()) check_recompute(problems, n, e);
}

void check_plain(Problems& problems, const Transformer& stack) {
  if (stack.moe.experts > 0 || stack.latent.used())
    problems.push_back({"", "experts and latent attention are described for decoders only"});
}

void check(Problems& problems, const Encoder& n, const Execution& e) {
  check_plain(problems, n.stack);
  check(problems, n.stack, e);
  if (!n.masked_lm && !n.next_sentence)
    problems.push_back({"", "the encoder has no head: no loss"});
  if (e.micro_batch.predictions > e.micro_batch.sequence_length) {
    problems.push_back(
        {"predictions", fmt::format("{} predictions of a sequence of {} tokens",
                                    e.micro_batch.predictions, e.micro_batch.sequence_length)});
  }
  if (e.micro_batch.predictions > 0 && !n.masked_lm)
    problems.push_back({"predictions", "there is no masked-language head"});
}

void check(Problems& problems, const EncoderDecoder& n, const Execution& e) {
  check_plain(problems, n.stack);
  must_be_positive(problems, "", "decoder layers", n.decoder_layers);
  must_be_positive(problems, "decoder_sequence_length", "the decoder's sequence length",
                   e.micro_batch.decoder_sequence_length);
  if (!problems.empty()) return;
  check(problems, encoder_stack(n), e);
  // The decoder's own are those of its length; all others are the encoder's too.
  Problems of_decoder;
  check(of_decoder, decoder_stack(n), decoder_execution(e));
  for (ExecutionProblem& problem : of_decoder) {
    const bool known = std::any_of(
        problems.begin(), problems.end(),
        [&](const ExecutionProblem& other) { return other.message == problem.message; });
    const bool too_large = problem.member.empty() && !known;
    if (problem.member != "sequence_length" && problem.member != "tensor_chunks" && !too_large)
      continue;
    if (problem.member == "sequence_length") problem.member = "decoder_sequence_length";
    problems.push_back(std::move(problem));
  }
  if (n.stack.positional == Positional::learned) {
    problems.push_back({"",
                        "learned positions are described for stacks with one embedding; an "
                        "encoder-decoder has \"relative\", \"rope\" and \"none\""});
  }
  if (e.context > 1) {
    problems.push_back({"context",
                        "context parallelism of cross-attention is not described; tensor and "
                        "sequence parallelism divide it"});
  }
}

// The length of the sequence follows from the image, so what it does not divide by is to blame.
void check(Problems& problems, const VisionTransformer& n, const Execution& e) {
  check_plain(problems, n.stack);
  must_be_positive(problems, "", "channels", n.channels);
  must_be_positive(problems, "", "patch size", n.patch);
  must_be_positive(problems, "", "classes", n.classes);
  if (!problems.empty()) return;
  if (n.height < n.patch || n.width < n.patch || n.height % n.patch != 0 ||
      n.width % n.patch != 0) {
    problems.push_back({"", fmt::format("an image of {}x{} pixels is not divisible into patches of "
                                        "{}x{}",
                                        n.height, n.width, n.patch, n.patch)});
    return;
  }
  const double image = static_cast<double>(n.channels) * static_cast<double>(n.height) *
                       static_cast<double>(n.width);
  const double batch = static_cast<double>(e.micro_batch.size),
               hidden = static_cast<double>(n.stack.hidden);
  const double classes = static_cast<double>(n.classes);
  if (16 * std::max({batch * image, hidden * image, batch * classes, hidden * classes}) >= 0x1p62) {
    problems.push_back({"",
                        "the sizes of the images and of the micro-batch multiply to more than "
                        "2^62 bytes"});
    return;
  }
  Problems of_stack;
  check(of_stack, n.stack, vision_execution(n, e));
  for (ExecutionProblem& problem : of_stack) {
    if (problem.member == "sequence_length") {
      problem.member = e.context > 1 ? "context" : "sequence_parallel";
      problem.message += fmt::format("; it is {} patches{}", n.patches(),
                                     n.class_token ? " and a class token" : "");
    }
    problems.push_back(std::move(problem));
  }
}

void check(Problems& problems, const Convolutional&, const Execution& e) {
  if (e.tensor > 1) {
    problems.push_back({"tensor", "convolutional networks have no tensor parallelism"});
  }
  if (e.context > 1) {
    problems.push_back({"context", "convolutional networks have no sequence to divide"});
  }
  if (e.tensor_parallel.sequence) {
    problems.push_back({"sequence_parallel", "convolutional networks have no sequence to divide"});
  }
  if (e.recompute.form != Recompute::none && e.recompute.form != Recompute::full) {
    problems.push_back({"recompute",
                        "that recomputation is of a transformer's modules; convolutional networks "
                        "have \"none\", \"full\", and methods of whole layers"});
  }
}

void check(Problems& problems, const Recommender& n, const Execution& e) {
  problems = check_recommender(n, e);
}

}  // namespace

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
    if (auto* kernel = std::get_if<NamedKernel>(&item)) kernel->name.insert(0, "recompute ");
    if (auto* start = std::get_if<GroupCollective>(&item)) start->name.insert(0, "recompute ");
  }
  return items;
}

std::vector<ExecutionProblem> check_execution(const Network& network, const Execution& execution) {
  Problems problems;
  must_be_positive(problems, "micro_batch", "micro-batch", execution.micro_batch.size);
  must_be_positive(problems, "tensor", "tensor-parallel degree", execution.tensor);
  must_be_positive(problems, "context", "context-parallel degree", execution.context);
  if (!problems.empty()) return problems;
  std::visit([&](const auto& n) { check(problems, n, execution); }, network);
  return problems;
}

namespace {

NetworkWork alike(const Network& network, const Execution& execution) {
  if (const auto* n = std::get_if<Transformer>(&network)) return transformer_work(*n, execution);
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_work(*n, execution);
  if (const auto* n = std::get_if<Encoder>(&network)) return encoder_work(*n, execution);
  if (const auto* n = std::get_if<EncoderDecoder>(&network))
    return encoder_decoder_work(*n, execution);
  if (const auto* n = std::get_if<VisionTransformer>(&network)) return vision_work(*n, execution);
  return convolutional_work(std::get<Convolutional>(network), execution);
}

// Adds the twins of what a layer split counts, where nothing is recomputed.
void add_plain(NetworkWork& work, const Network& network, Execution execution) {
  execution.recompute.form = Recompute::none;
  execution.recompute.modules = {};
  const NetworkWork plain = alike(network, execution);
  work.plain.resize(plain.kinds.size());
  std::iota(work.plain.begin(), work.plain.end(), 0);
  for (std::size_t place = 0; place < plain.chain.size(); ++place) {
    const auto kind = static_cast<std::size_t>(plain.chain[place]);
    if (!plain.divisible[place] || work.plain[kind] != plain.chain[place]) continue;
    work.plain[kind] = static_cast<int>(work.kinds.size());
    work.kinds.push_back(plain.kinds[kind]);
  }
}

}  // namespace

NetworkWork network_work(const Network& network, const Execution& execution) {
  const Problems problems = check_execution(network, execution);
  TRAINYARD_CHECK(problems.empty(), "{}", problems.front().message);
  NetworkWork work = alike(network, execution);
  if (execution.recompute.layers.method != RecomputeLayers::Method::all)
    add_plain(work, network, execution);
  return work;
}

bool reads_tokens(const Network& network) {
  return stack_of(network) != nullptr && !std::holds_alternative<VisionTransformer>(network);
}

const Transformer* stack_of(const Network& network) {
  if (const auto* transformer = std::get_if<Transformer>(&network)) return transformer;
  if (const auto* n = std::get_if<Encoder>(&network)) return &n->stack;
  if (const auto* n = std::get_if<EncoderDecoder>(&network)) return &n->stack;
  if (const auto* n = std::get_if<VisionTransformer>(&network)) return &n->stack;
  return nullptr;
}

std::int64_t parameter_count(const Network& network, std::int64_t sequence_length) {
  if (const auto* transformer = std::get_if<Transformer>(&network)) {
    return transformer_parameters(*transformer, sequence_length);
  }
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_parameters(*n);
  if (const auto* n = std::get_if<Encoder>(&network))
    return encoder_parameters(*n, sequence_length);
  if (const auto* n = std::get_if<EncoderDecoder>(&network)) return encoder_decoder_parameters(*n);
  if (const auto* n = std::get_if<VisionTransformer>(&network)) return vision_parameters(*n);
  return convolutional_parameters(std::get<Convolutional>(network));
}

std::int64_t divisible_layers(const Network& network) {
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_places(*n);
  if (const auto* n = std::get_if<EncoderDecoder>(&network))
    return n->stack.layers + n->decoder_layers;
  if (const Transformer* stack = stack_of(network)) return stack->layers;
  std::int64_t count = 0;
  for (const bool divisible : divisible_units(std::get<Convolutional>(network))) {
    if (divisible) ++count;
  }
  return count;
}

std::int64_t chain_length(const Network& network) {
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_places(*n);
  if (stack_of(network) != nullptr)
    return divisible_layers(network) + (std::holds_alternative<EncoderDecoder>(network) ? 3 : 2);
  return static_cast<std::int64_t>(divisible_units(std::get<Convolutional>(network)).size());
}

}  // namespace trainyard::models
