// Activations of a transformer on one tensor-parallel rank.
//
//   GPT, 16 bits, unfused attention with dropout, per layer (exactly; tested as integers):
//     t only         s b h (10 + 24/t + 5 a s / (h t))
//     t and sequence s b h (34 + 5 a s / h) / t
//     selective      the same without 5 a s / h;  full: 2 s b h
// Source: Korthikanti et al. 2022, equations 1 to 6.
#include <array>
#include <optional>
#include <utility>

#include "models/layer/layer_script.h"
#include "models/transformer/attention/attention_script.h"
#include "models/transformer/attention/cross_attention.h"
#include "models/transformer/attention/score_script.h"
#include "models/transformer/experts.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

int linear_layers(const TransformerSlice& s, PieceKind kind) {
  if (kind == PieceKind::qkv) return s.kernels.separate_projections ? 3 : 1;
  const bool gate = kind == PieceKind::fc1 && gated(s);
  return gate && s.kernels.separate_gate ? 2 : 1;
}

// Term by term, d bytes per element and i per element that a weight gradient needs, m tokens, q of
// them outside the tensor-parallel regions:
//   inputs of both norms                    2 q h d
//   inputs of qkv and fc1 (norm outputs)    2 q h i       m for q where gathered inputs are kept,
//                                                         once for each projection that gathers
//   two dropout masks                       2 q h         with dropout, a byte each
//   query, key, value                       m (a + 2 kv) hs / t d     kv is a where they are
//   repeated query and key before their norms        m (a + kv) hs / t d       with norms of heads;
//                                                                              d + 4 by operators
//   attention output = input of proj        m a hs / t d              both, where i is not d
//   activation inputs and input of fc2      m f / t (i + d x (GELU, ReLU^2 1, ReLU 0, gates 2))
//                                                         2 x 1 for 2 d where gates are kept in fp8
//   unfused: softmax output                 m s a / t d         4 + d where it is of fp32 copies
//            its mask and dropped-out copy  m s a / t (1 + d)   with dropout; 1 beside 4 + d
//   fused:   softmax statistics             m a / t 4
//   autocast: inputs of norms are of 4 bytes; those of linear layers are 16-bit copies, one for
//            each layer, and the copies of weights  2 P
//   mixture: router's scores                q E 4
//            rows at the experts            r h i, r f1 d, r f i: inputs of fc1, activation, fc2
//            clamps by operators            r f1 d: what they gave
//            eager gates                    r f d: the activated half; with limits twice that
//            experts' outputs               q k h d, for the gradient of their weights in the sum;
//                                           none where the activation weights rows
//            shared experts                 as a feed-forward layer of their width
//   Mamba:   projected input                m (2 I + 2 G N + H) / t d
//            scan's output, its norm's      m I / t (d + i)
// Statistics of the norms (8 bytes per token) are left out, as in the source.
namespace {

// RMSNorms by operators have an fp32 copy of what they read, but of what has 4 bytes already.
bool keeps_normed_copies(const TransformerSlice& s) {
  const bool rms = s.norm == Norm::rms_norm || s.latent.used();
  return s.kernels.norms_by_operators && rms && s.element() < size_of(Dtype::fp32);
}

class Tensors {
 public:
  Tensors(LayerScript& script, const TransformerSlice& slice) : script_(script), s_(slice) {}

  void attention();
  void plain_products();
  void latent_products();
  void cross_attention();
  void feed_forward(const std::array<PieceKind, 3>& kinds, std::int64_t width, Module module);
  void experts();
  void mamba();
  // Its sum is kept for the norm that reads it, if that is one of the layer.
  void residual(PieceKind kind, std::optional<PieceKind> next_norm);
  void reductions();
  void exchanges();
  Piece* find(PieceKind kind);
  Bytes outside() const { return s_.shard_tokens * s_.hidden * s_.element(); }
  Bytes outside_input() const { return s_.kept_inputs(); }
  // The input of linear layers, of which each has its own where it makes a 16-bit copy, or keeps
  // what it has gathered for itself.
  Bytes copied_inputs(PieceKind reader) const {
    const bool own = s_.autocast || (s_.keeps_gathered && s_.gathers_per_projection);
    return (own ? linear_layers(s_, reader) : 1) * s_.kept_inputs();
  }
  // The 16-bit copy of a weight, for the gradient of the input.
  void save_weight(PieceKind kind, Module module, std::int64_t numbers) {
    if (s_.autocast) save(kind, {module, numbers * s_.element(), kind});
  }
  void save(PieceKind kind, SavedTensor tensor) {
    if (tensor.bytes > Bytes(0)) find(kind)->saved.push_back(tensor);
  }

 private:
  Bytes of(std::int64_t width) const { return s_.tokens * width * s_.element(); }
  Bytes input_of(std::int64_t width) const { return s_.tokens * width * s_.input_element(); }
  // Of attention, which fused kernels need for their own gradient too.
  void attention_output(PieceKind core, PieceKind proj);
  // What attention to `keys` tokens keeps; fused: the statistics of the softmax.
  Bytes scores(std::int64_t keys) const;

  LayerScript& script_;
  const TransformerSlice& s_;
};

Piece* Tensors::find(PieceKind kind) {
  for (Piece& piece : script_.pieces)
    if (piece.kind == kind) return &piece;
  return nullptr;
}

Bytes Tensors::scores(std::int64_t keys) const {
  const std::int64_t rows = s_.tokens * s_.heads;
  if (s_.kernels.fused_attention()) return rows * size_of(Dtype::fp32);
  return kept_of_scores(s_, rows * keys);
}

void Tensors::attention_output(PieceKind core, PieceKind proj) {
  const Bytes input = input_of(s_.attention_width), output = of(s_.attention_width);
  if (input != output && s_.kernels.fused_attention())
    save(core, {Module::attention, output, core});
  save(core, {Module::attention, input, proj, true});
}

void Tensors::attention() {
  using P = PieceKind;
  const P reads_norm = s_.latent.used() ? P::compress : P::qkv;
  // One norm of parallel blocks is read by both.
  const bool shared = s_.blocks == Blocks::parallel_one_norm;
  if (!s_.post_norm && s_.block_norms != BlockNorms::after)
    save(P::norm_1, {Module::attention, copied_inputs(P::qkv), shared ? P::fc1 : reads_norm, true});
  if (s_.latent.used()) {
    const Bytes narrow = s_.shard_tokens * latent_kept_per_token(s_.latent) * s_.element();
    save(P::compress, {Module::attention, narrow, P::qkv, true});
    const std::int64_t normed = s_.latent.query_rank + s_.latent.key_value_rank;
    if (keeps_normed_copies(s_))
      save(P::compress,
           {Module::norms, s_.shard_tokens * normed * size_of(Dtype::fp32), P::compress});
  }
  if (s_.head_norm != HeadNorm::none) {
    const std::int64_t numbers = (s_.heads + s_.kv_heads) * s_.head_size;
    save(P::qkv, {Module::attention, of(numbers), P::heads});
    if (keeps_normed_copies(s_) && s_.head_norm != HeadNorm::unweighted)
      save(P::qkv, {Module::norms, s_.tokens * numbers * size_of(Dtype::fp32), P::heads});
  }
  // Where nothing happens between the projection and attention, its output is what attention needs.
  save(find(P::heads)->forward.empty() ? P::qkv : P::heads,
       {Module::attention, of(s_.attended_width()), P::core});
  const Bytes inner = scores(s_.sequence_length);
  save(P::core, {Module::attention_scores, inner, P::core});
  attention_output(P::core, P::proj);
  if (s_.kernels.fused_attention()) find(P::core)->fused_output = of(s_.attention_width) + inner;
  s_.latent.used() ? latent_products() : plain_products();
  find(P::proj)->products.push_back({s_.hidden, of(s_.hidden)});
  for (const P kind : {P::qkv, P::core, P::proj})
    find(kind)->module = Module::attention;
  save_weight(P::qkv, Module::attention, s_.qkv_width * s_.hidden);
  save_weight(P::proj, Module::attention, s_.attention_width * s_.hidden);
}

void Tensors::plain_products() {
  for (const auto& [name, heads] :
       {std::pair{"query", s_.heads}, {"key", s_.kv_heads}, {"value", s_.kv_heads}})
    find(PieceKind::qkv)
        ->products.push_back({heads * s_.head_size, of(heads * s_.head_size), name});
}

// A script compresses and expands queries first, keys and values then.
void Tensors::latent_products() {
  const LatentAttention& l = s_.latent;
  const auto add = [&](PieceKind kind, std::int64_t tokens, std::int64_t columns, const char* name,
                       int later) {
    find(kind)->products.push_back({columns, tokens * columns * s_.element(), name, later});
  };
  const bool twice = l.query_rank > 0;
  if (twice) add(PieceKind::compress, s_.shard_tokens, l.query_rank, "query compression", 0);
  add(PieceKind::compress, s_.shard_tokens, l.key_value_rank + l.rope_size,
      "key and value compression", 1);
  add(PieceKind::qkv, s_.tokens, s_.heads * l.query_key_size(), "query expansion", -1);
  add(PieceKind::qkv, s_.tokens, s_.heads * (l.nope_size + l.value_size), "key and value expansion",
      0);
  find(PieceKind::compress)->module = Module::attention;
}

void Tensors::cross_attention() {
  using P = PieceKind;
  constexpr Module module = Module::attention;
  const std::int64_t key_value = 2 * s_.kv_heads * s_.head_size;
  const Bytes keys_and_values = s_.memory_tokens * key_value * s_.element();
  const Bytes queries = of(s_.attention_width), inner = scores(s_.memory_length);
  const bool laid_out = !find(P::cross_heads)->forward.empty();
  save(P::cross_norm, {module, outside_input(), P::cross_query, true});
  save(laid_out ? P::cross_heads : P::cross_query, {module, queries, P::cross_core});
  save(laid_out ? P::cross_heads : P::cross_key_value, {module, keys_and_values, P::cross_core});
  save(P::cross_core, {Module::attention_scores, inner, P::cross_core});
  attention_output(P::cross_core, P::cross_proj);
  if (s_.kernels.fused_attention()) find(P::cross_core)->fused_output = queries + inner;
  find(P::cross_query)->products.push_back({s_.attention_width, queries});
  find(P::cross_key_value)->products.push_back({key_value, keys_and_values});
  find(P::cross_proj)->products.push_back({s_.hidden, of(s_.hidden)});
  for (const P kind : {P::cross_query, P::cross_key_value, P::cross_core, P::cross_proj})
    find(kind)->module = module;
}

// Eager gates keep the activated half beside both halves and their product; fused ones compute it
// again. The gradient of ReLU needs only the sign of its output, which fc2 keeps anyway.
void Tensors::feed_forward(const std::array<PieceKind, 3>& kinds, std::int64_t width,
                           Module module) {
  const auto [fc1, activation, fc2] = kinds;
  const int halves = gated(s_) ? 2 : 1;
  if (runs_gelu_by_operators(s_))
    save(fc1, {module, s_.tokens * width * kept_by_gelu_operators(s_), activation});
  else if (s_.feed_forward != FeedForward::relu)
    save(fc1, {module, s_.kept_gate_bytes(s_.tokens, halves * width), activation});
  if (gated(s_) && eager(s_)) save(activation, {module, of(width), activation});
  save(activation, {module, input_of(width), fc2, true});
  for (int half = 0; half < halves; ++half)
    find(fc1)->products.push_back({width, of(width), half == 0 ? "gate" : "up"});
  find(fc2)->products.push_back({s_.hidden, of(s_.hidden)});
  for (const PieceKind kind : kinds)
    find(kind)->module = module;
  save_weight(fc1, module, halves * width * s_.hidden);
  save_weight(fc2, module, width * s_.hidden);
}

void Tensors::experts() {
  using P = PieceKind;
  constexpr Module module = Module::experts;
  const auto rows = [&](std::int64_t width) { return s_.expert_rows() * width * s_.element(); };
  const auto inputs = [&](std::int64_t width) {
    return s_.expert_rows() * width * s_.input_element();
  };
  save(P::router, {module, s_.shard_tokens * s_.moe.experts * size_of(Dtype::fp32), P::combine});
  save(P::dispatch, {module, inputs(s_.hidden), P::experts_fc1, true});
  if (runs_gelu_by_operators(s_))
    save(P::experts_fc1, {module, s_.expert_rows() * s_.expert_ffn * kept_by_gelu_operators(s_),
                          P::experts_activation});
  else
    save(P::experts_fc1, {module, s_.kept_gate_bytes(s_.expert_rows(), s_.expert_fc1_width()),
                          P::experts_activation});
  // Beside them, of single operators: both halves within limits, and the gate's sigmoid; the
  // activated half, or what it is multiplied to be.
  if (clamps_by_operators(s_))
    save(P::experts_activation, {module, rows(s_.expert_fc1_width()), P::experts_activation});
  const int halves = !gated(s_) || !eager(s_) ? 0 : s_.moe.clamped ? 2 : 1;
  save(P::experts_activation, {module, halves * rows(s_.expert_ffn), P::experts_activation});
  save(P::experts_activation, {module, inputs(s_.expert_ffn), P::experts_fc2, true});
  if (!s_.kernels.rows_weighted_in_activation)
    save(P::combine, {module, weighted_rows(s_) * s_.hidden * s_.element(), P::combine});
}

// The scan's function keeps what it reads, and its output before the norm for the norm's gradient.
void Tensors::mamba() {
  using P = PieceKind;
  const std::int64_t projected = s_.mamba.projected(), inner = s_.mamba.inner();
  constexpr Module module = Module::mamba;
  save(P::norm_1, {module, copied_inputs(P::mamba_in), P::mamba_in, true});
  save(P::mamba_in, {module, of(projected), P::mamba_scan});
  save(P::mamba_scan, {module, of(inner), P::mamba_scan});
  save(P::mamba_scan, {module, input_of(inner), P::mamba_out, true});
  find(P::mamba_in)->products.push_back({projected, of(projected)});
  find(P::mamba_out)->products.push_back({s_.hidden, of(s_.hidden)});
  for (const P kind : {P::mamba_in, P::mamba_out})
    find(kind)->module = module;
  save_weight(P::mamba_in, module, projected * s_.hidden);
  save_weight(P::mamba_out, module, inner * s_.hidden);
}

void Tensors::residual(PieceKind kind, std::optional<PieceKind> next_norm) {
  if (s_.dropout) save(kind, {Module::dropout_masks, Bytes(s_.shard_tokens * s_.hidden), kind});
  if (next_norm) save(kind, {Module::norms, s_.stream_shard(), *next_norm});
}

// Source: torchtitan's list of operators whose outputs are kept, all_to_all_single among them.
void Tensors::exchanges() {
  if (!s_.expert_parallel || find(PieceKind::dispatch) == nullptr) return;
  find(PieceKind::dispatch)->exchanged = s_.arriving_rows / s_.expert_tensor * s_.dispatched_row;
  find(PieceKind::combine)->exchanged = s_.routed_rows * s_.hidden * s_.element();
  for (const PieceKind kind : {PieceKind::dispatch, PieceKind::combine})
    find(kind)->module = Module::experts;
}

void Tensors::reductions() {
  if (!s_.sequence_parallel || s_.parallel()) return;
  for (const PieceKind kind :
       {PieceKind::proj, PieceKind::cross_proj, PieceKind::fc2, PieceKind::mamba_out})
    if (Piece* piece = find(kind)) piece->scattered = outside();
}

}  // namespace

namespace {

// What the feed-forward half reads: the output of its norm, or, where nothing is normalised before
// it, the stream itself. Parallel blocks with one norm have kept that for attention.
void save_feed_forward_input(Tensors& tensors, const TransformerSlice& s, bool mixture) {
  using P = PieceKind;
  if (s.blocks == Blocks::parallel_one_norm) return;
  // The router reads it in 16 bits.
  const SavedTensor input = {mixture ? Module::experts : Module::feed_forward,
                             mixture ? tensors.outside() : tensors.copied_inputs(P::fc1),
                             mixture ? P::combine : P::fc1, true};
  if (s.block_norms == BlockNorms::after)
    tensors.save(P::residual_1, input);
  else
    tensors.save(s.post_norm ? P::norm_1 : P::norm_2, input);
}

// The inputs of norms that stand behind attention and the feed-forward half.
void save_branches(Tensors& tensors, const TransformerSlice& s, bool mixture) {
  using P = PieceKind;
  if (s.block_norms == BlockNorms::before) return;
  const P last = !mixture ? P::fc2 : s.shared_ffn > 0 ? P::shared_sum : P::combine;
  tensors.save(P::proj, {Module::norms, tensors.outside(), P::branch_norm_1});
  tensors.save(last, {Module::norms, tensors.outside(), P::branch_norm_2});
}

}  // namespace

namespace {

// Attention, and cross-attention behind it, with their residual additions.
void save_attention(Tensors& tensors, const TransformerSlice& s) {
  using P = PieceKind;
  tensors.attention();
  const bool cross = s.memory_length > 0;
  const P reads_sum = s.post_norm ? P::norm_1 : cross ? P::cross_norm : P::norm_2;
  const bool alone = s.content == Content::attention || s.block_norms == BlockNorms::after;
  if (!s.parallel())
    tensors.residual(P::residual_1, alone ? std::nullopt : std::optional<PieceKind>(reads_sum));
  if (!cross) return;
  tensors.cross_attention();
  tensors.residual(P::cross_residual, P::norm_2);
}

void save_feed_forward(Tensors& tensors, const TransformerSlice& s) {
  using P = PieceKind;
  const bool mixture = tensors.find(P::router) != nullptr;
  save_feed_forward_input(tensors, s, mixture);
  if (mixture) {
    tensors.experts();
    tensors.exchanges();
    if (s.shared_ffn > 0) {
      tensors.feed_forward({P::shared_fc1, P::shared_activation, P::shared_fc2}, s.shared_ffn,
                           Module::experts);
      // What the gate scales is kept for the gate's own gradient.
      if (s.moe.shared_gate)
        tensors.save(P::shared_fc2, {Module::experts, tensors.outside(), P::shared_sum});
    }
  } else {
    tensors.feed_forward({P::fc1, P::activation, P::fc2}, s.ffn, Module::feed_forward);
  }
  save_branches(tensors, s, mixture);
  tensors.residual(P::residual_2, s.post_norm ? std::optional<PieceKind>(P::norm_2) : std::nullopt);
}

void save_norms(Tensors& tensors, const TransformerSlice& s) {
  using P = PieceKind;
  // Norms keep the fp32 copy in place of what it is a copy of.
  const Bytes wider = s.shard_tokens * s.hidden * (size_of(Dtype::fp32) - s.element());
  for (const P kind : {P::norm_1, P::branch_norm_1, P::cross_norm, P::norm_2, P::branch_norm_2})
    if (s.norms_cast() && tensors.find(kind)) tensors.save(kind, {Module::norms, wider, kind});
  if (!s.kernels.norms_by_operators || s.norm != Norm::rms_norm) return;
  // Its input in fp32, which the squares and the scaling keep, and what the weight multiplies, for
  // the weight's own gradient. An fp32 input is no copy; one of 16 bits is not kept beside it where
  // the copy is scaled.
  const bool copies = s.stream != Dtype::fp32;
  const bool scales_copy =
      copies && !s.kernels.norms_scale_input.value_or(s.positional == Positional::relative);
  const Bytes single = copies ? size_of(Dtype::fp32) : Bytes(0);
  const Bytes multiplied = s.trained_norms ? size_of(s.stream) : Bytes(0);
  const Bytes input = scales_copy ? size_of(s.stream) : Bytes(0);
  const Bytes kept = s.shard_tokens * s.hidden * (single + multiplied - input);
  for (const P kind : {P::norm_1, P::norm_2})
    if (tensors.find(kind) != nullptr) tensors.save(kind, {Module::norms, kept, kind});
}

}  // namespace

void save_tensors(LayerScript& script, const TransformerSlice& s) {
  using P = PieceKind;
  Tensors tensors(script, s);
  const bool straight = s.post_norm || s.block_norms == BlockNorms::after;
  const P reader = s.latent.used() ? P::compress : P::qkv;
  const P norm = s.content == Content::feed_forward ? P::norm_2 : P::norm_1;
  script.input = {Module::layer_input, s.stream_shard(), straight ? reader : norm, straight};
  if (s.content == Content::whole || s.content == Content::attention) save_attention(tensors, s);
  if (s.content == Content::whole || s.content == Content::feed_forward)
    save_feed_forward(tensors, s);
  if (s.content == Content::mamba) {
    tensors.mamba();
    tensors.residual(P::residual_1, std::nullopt);
  }
  tensors.reductions();
  save_norms(tensors, s);
}

}  // namespace trainyard::models
