// Why a stack of transformer layers cannot be executed so.
#include <fmt/format.h>

#include <algorithm>

#include "models/families/execution_check.h"
#include "models/transformer/finetune/adapters.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {
namespace {

// Every product that the layers form stays below 2^62. In floating point, so that the test itself
// cannot overflow.
void must_be_countable(Problems& problems, const Transformer& n, const Execution& e) {
  const std::int64_t length = e.micro_batch.sequence_length;
  const auto tokens = static_cast<double>(e.micro_batch.size) * static_cast<double>(length);
  const double columns = static_cast<double>(n.hidden) +
                         3 * static_cast<double>(n.heads) * static_cast<double>(n.head_size) +
                         3 * static_cast<double>(n.ffn_hidden) + static_cast<double>(n.vocabulary) +
                         2 * static_cast<double>(n.mamba.projected());
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
  const double states =
      tokens * static_cast<double>(n.mamba.inner()) *
      static_cast<double>(n.mamba.state_size + std::min<std::int64_t>(n.mamba.chunk, length));
  for (const double count :
       {16 * tokens * columns, 16 * states, 16 * scores, 16 * parameters, 16 * routed}) {
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
                     n.moe.ffn_hidden, e.experts.tensor)});
  }
  must_divide(problems, "tensor", "the feed-forward size of the shared experts",
              n.moe.shared_ffn_hidden, e.tensor);
  if (e.tensor > 1 && !e.tensor_parallel.sequence) {
    problems.push_back({"sequence_parallel",
                        "experts behind tensor parallelism need sequence parallelism: without it "
                        "every tensor-parallel rank would send the same tokens"});
  }
}

void check_fusion(Problems& problems, const Transformer& n, const Execution& e) {
  const bool blocks = n.block_norms != BlockNorms::before || n.parallel() || n.embedding_norm;
  if (n.parallel() && (n.moe.experts > 0 || n.block_norms != BlockNorms::before))
    problems.push_back({"", "parallel blocks are described for dense layers with norms before"});
  if (e.kernels.fusion == Fusion::by_hand) return;
  if (blocks) {
    problems.push_back({"fusion",
                        "parallel blocks, norms behind blocks and of the embedding are described "
                        "with fused kernels only; leave the execution \"fused\""});
  }
}

void check_autocast(Problems& problems, const Transformer& n, const Execution& e) {
  if (!e.autocast) return;
  constexpr const char* kMember = "autocast";
  if (n.moe.experts > 0 || n.latent.used() || n.parallel() || n.embedding_norm ||
      n.block_norms != BlockNorms::before) {
    problems.push_back({kMember,
                        "16-bit products of fp32 weights (torch.autocast) are described of dense "
                        "layers with norms before or after their additions; remove it"});
    return;
  }
  if (e.kernels.fusion != Fusion::eager)
    problems.push_back({kMember,
                        "16-bit products of fp32 weights (torch.autocast) are described of an "
                        "eager execution; set the execution to \"eager\""});
  if (e.tensor > 1)
    problems.push_back(
        {kMember,
         "autocast is not described beside tensor parallelism; set tp to 1, or remove it"});
}

void check_head_norm(Problems& problems, const Transformer& n, const Execution& e) {
  if (n.head_norm == HeadNorm::whole && e.tensor > 1) {
    problems.push_back({"tensor",
                        "a norm over all heads needs their sum of squares, and tensor parallelism "
                        "divides the heads; that exchange is not described"});
  }
}

void check_latent(Problems& problems, const Transformer& n, const Execution& e) {
  if (!n.latent.used()) return;
  if (n.head_norm != HeadNorm::none || n.attention_sinks) {
    problems.push_back({"",
                        "latent attention has norms of its own; norms of heads and sinks are "
                        "described for plain attention"});
  }
  must_be_positive(problems, "", "the position-free part of a head", n.latent.nope_size);
  must_be_positive(problems, "", "the rotated part of a head", n.latent.rope_size);
  must_be_positive(problems, "", "the head size of values", n.latent.value_size);
  if (!e.kernels.fused_attention()) {
    problems.push_back({"fused_attention",
                        "latent attention has heads of two sizes, which only fused attention has; "
                        "set it to true"});
  }
}

void check_hybrid(Problems& problems, const Transformer& n, const Execution& e) {
  if (n.pattern.empty()) return;
  if (static_cast<std::int64_t>(n.pattern.size()) != n.layers)
    problems.push_back(
        {"", fmt::format("the pattern of {} layers is one of {}", n.layers, n.pattern.size())});
  if (n.parallel() || n.post_norm || n.block_norms != BlockNorms::before || n.window.size > 0)
    problems.push_back({"",
                        "layers of a pattern have one norm before and no window; parallel blocks, "
                        "other norms and windows are described of whole layers"});
  if (!e.finetune.all())
    problems.push_back({"trains", "fine-tuning is described of whole layers, not of a pattern"});
  if (e.autocast)
    problems.push_back({"autocast",
                        "16-bit products of fp32 weights (torch.autocast) are described of whole "
                        "layers; remove it"});
  if (!n.mamba.used()) return;
  must_divide(problems, "tensor", "Mamba heads", n.mamba.heads, e.tensor);
  must_divide(problems, "tensor", "groups of Mamba heads", n.mamba.groups, e.tensor);
  if (e.context > 1 && n.mamba.groups % (std::int64_t{e.tensor} * e.context) != 0)
    problems.push_back(
        {"context", fmt::format("groups of Mamba heads ({}) must be divisible by the "
                                "tensor-parallel degree ({}) times the context-parallel degree "
                                "({}), which deals them",
                                n.mamba.groups, e.tensor, e.context)});
}

void check_context(Problems& problems, const Transformer& n, const Execution& e) {
  if (e.context == 1) return;
  if (!e.kernels.fused_attention()) {
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
  // As Transformer Engine refuses it: a part of the keys that goes round is seen by few queries.
  if (n.window.size > 0 && n.window.size < e.micro_batch.sequence_length &&
      e.context_parallel.method == ContextMethod::ring) {
    problems.push_back({"context_method",
                        "a ring sends all keys round, and layers with a window need few of them; "
                        "use all_gather or ulysses"});
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
  const std::vector<LayerForm> forms = layer_forms(n);
  for (const M module : {M::core_attn, M::mlp, M::moe, M::moe_act, M::shared_experts, M::layernorm,
                         M::mla_up_proj}) {
    if (!names(e, module)) continue;
    const bool found = std::any_of(forms.begin(), forms.end(), [&](const LayerForm& form) {
      return has_module(transformer_script(n, e, form), module);
    });
    if (!found)
      problems.push_back({"recompute", fmt::format("no layer has a module {}", name(module))});
  }
  for (const M module : {M::moe_act, M::shared_experts}) {
    if (names(e, M::moe) && names(e, module))
      problems.push_back(
          {"recompute", fmt::format("{} is a part of moe, which recomputes it", name(module))});
  }
}

// Names of the linear layers that may have adapters, of one rank.
std::string adaptable(const TransformerSlice& s) {
  std::string names;
  for (const Target target : {Target::query, Target::key, Target::value, Target::output,
                              Target::gate, Target::up, Target::fc2, Target::qkv, Target::fc1})
    if (adapted_matrix(target, s).outputs > 0)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name(target));
  return names;
}

// The whole matrix that a target names. Its inputs or outputs are divided.
AdaptedMatrix whole(Target target, const TransformerSlice& s) {
  AdaptedMatrix matrix = adapted_matrix(target, s);
  const bool by_rows = target == Target::output || target == Target::fc2;
  (by_rows ? matrix.inputs : matrix.outputs) *= s.tensor;
  return matrix;
}

void check_targets(Problems& problems, const TransformerSlice& s, const Transformer& n,
                   const Finetune& how) {
  using T = Target;
  const auto any = [&](std::initializer_list<T> targets) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](T target) { return how.targets.has(target); });
  };
  if (n.latent.used() && any({T::query, T::key, T::value, T::qkv, T::output}))
    problems.push_back({"targets", "adapters are described for plain attention, not latent"});
  if (n.moe.experts > 0 && any({T::gate, T::up, T::fc1, T::fc2}))
    problems.push_back({"targets", "adapters of experts are not described; \"attention\" is"});
  if (how.targets.has(T::qkv) && any({T::query, T::key, T::value}))
    problems.push_back({"targets", "linear_qkv is q_proj, k_proj and v_proj in one: name either"});
  if (how.targets.has(T::fc1) && any({T::gate, T::up}))
    problems.push_back({"targets", "linear_fc1 is gate_proj and up_proj in one: name either"});
  for (const T target :
       {T::query, T::key, T::value, T::qkv, T::output, T::gate, T::up, T::fc1, T::fc2}) {
    if (!how.targets.has(target)) continue;
    const AdaptedMatrix matrix = whole(target, s);
    const bool named_alone = target != T::gate || !any({T::up}) || !any({T::fc2});
    if (matrix.outputs == 0 && named_alone)
      problems.push_back(
          {"targets", fmt::format("no layer has a {}; there are {}", name(target), adaptable(s))});
    const std::int64_t least = std::min(matrix.outputs, matrix.inputs);
    if (matrix.outputs > 0 && how.rank > least)
      problems.push_back(
          {"rank", fmt::format("an adapter of rank {} is more than the {} x {} matrix of {} itself",
                               how.rank, matrix.outputs, matrix.inputs, name(target))});
  }
  if (how.rank % s.tensor != 0)
    problems.push_back({"rank", fmt::format("the rank of adapters ({}) must be divisible by the "
                                            "tensor-parallel degree ({}), which divides their A",
                                            how.rank, s.tensor)});
  if (n.hidden % s.tensor != 0)
    problems.push_back({"tensor", fmt::format("the hidden size ({}) must be divisible by the "
                                              "tensor-parallel degree ({}), which divides the B of "
                                              "adapters",
                                              n.hidden, s.tensor)});
}

// Requires: no problems so far, so that a layer can be cut.
void check_finetune(Problems& problems, const Transformer& n, const Execution& e) {
  const Finetune& how = e.finetune;
  if (how.all()) return;
  if (how.last_layers > n.layers)
    problems.push_back({"last_layers", fmt::format("there are {} layers", n.layers)});
  if (how.quantises() && (n.moe.experts > 0 || n.latent.used()))
    problems.push_back({"base",
                        "weights of 4 bits are described for dense layers with plain "
                        "attention"});
  if (how.quantises() && (how.trains.has(Part::attention) || how.trains.has(Part::feed_forward)))
    problems.push_back({"trains", "weights of 4 bits are too coarse to be updated"});
  if (n.tied_embeddings && how.trains.has(Part::embedding) != how.trains.has(Part::head))
    problems.push_back({"trains", "embedding and head share one matrix: both train, or none"});
  if (how.adapts()) check_targets(problems, slice(n, e), n, how);
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

}  // namespace

void check_stack(Problems& problems, const Transformer& n, const Execution& e) {
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
  const bool attends = n.has_part('*');
  if (attends) must_divide(problems, "tensor", "attention heads", n.heads, e.tensor);
  // Fewer heads than ranks are held by several ranks each.
  if (attends && (n.kv_heads >= e.tensor || e.tensor % n.kv_heads != 0))
    must_divide(problems, "tensor", "key/value heads", n.kv_heads, e.tensor);
  if (n.has_part('-'))
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
  check_hybrid(problems, n, e);
  if (!problems.empty()) return;
  check_context(problems, n, e);
  check_experts(problems, n, e);
  check_fusion(problems, n, e);
  check_autocast(problems, n, e);
  check_latent(problems, n, e);
  check_head_norm(problems, n, e);
  const std::int64_t document = e.micro_batch.document_length;  // in which positions begin anew
  const std::int64_t positions = document > 0 ? document : e.micro_batch.sequence_length.value();
  if (n.positional == Positional::learned && n.max_positions > 0 && positions > n.max_positions) {
    problems.push_back(
        {"sequence_length", fmt::format("the sequence length ({}) exceeds the {} learned positions",
                                        positions, n.max_positions)});
  }
  if (problems.empty()) check_finetune(problems, n, e);
  if (problems.empty()) check_recompute(problems, n, e);
}

void check_plain(Problems& problems, const Transformer& stack) {
  if (stack.parallel() || stack.block_norms != BlockNorms::before || stack.embedding_norm ||
      stack.window.size > 0 || !stack.pattern.empty())
    problems.push_back(
        {"", "such blocks, patterns, norms and windows are described for decoders only"});
  if (stack.moe.experts > 0 || stack.latent.used())
    problems.push_back({"", "experts and latent attention are described for decoders only"});
}

const Family<Transformer>& row_of(const Transformer*) {
  static const Family<Transformer> row = {.name = "transformer",
                                          .words = "a transformer",
                                          .sample = Sample::tokens,
                                          .check = check_stack,
                                          .work = transformer_work,
                                          .parameters = transformer_parameters,
                                          .chain =
                                              [](const Transformer& n) {
                                                return ChainLength{n.layers + 2, n.layers};
                                              },
                                          .stack = [](const Transformer& n) { return &n; }};
  return row;
}

}  // namespace trainyard::models
