// Networks made of transformer layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainyard::models {

template <class N>
struct Family;

// squared_relu: the square of ReLU. Source: So et al., Primer, 2021, section 4.
enum class FeedForward : std::uint8_t { gelu, relu, squared_relu, swiglu, geglu };
//   relative: a bias per head and distance is added to the scores; distances share `buckets` rows.
//             Source: Raffel et al., T5, JMLR 2020, section 2.1.
//   alibi:    a distance times a slope of each head is added to the scores, inside the kernel that
//             masks them. Source: Press et al., Train Short, Test Long, 2022.
enum class Positional : std::uint8_t { learned, rope, none, relative, alibi };
enum class Norm : std::uint8_t { layer_norm, rms_norm };
// Of queries and keys, behind their projection and before positions enter.
//   per_head: each head by itself, with one weight per column of a head that all heads share.
//             Source: Qwen Team, Qwen3, 2025, section 2; Gemma Team, Gemma 3, 2025, section 2.
//   whole:    all heads together, with a weight per column. Source: OLMo Team, OLMo 2, 2024.
//   unweighted: as per_head, without weights. Source: Hugging Face's Llama4TextL2Norm.
enum class HeadNorm : std::uint8_t { none, per_head, whole, unweighted };

// Where a decoder's layer has norms.
//   before: attention and the feed-forward layer, of what they read.
//   around: both, and also of what they add to the stream. Source: Gemma Team, Gemma 2, 2024.
//   after:  of what they add alone. Source: OLMo Team, 2 OLMo 2 Furious, 2024, section 2.1.
enum class BlockNorms : std::uint8_t { before, around, after };
// Whether the feed-forward layer reads what attention has added to the stream, or the same stream,
// beside it, with a norm of its own or the same one. Source: Wang and Komatsuzaki, GPT-J, 2021;
// Black et al., GPT-NeoX-20B, 2022, section 2.1; Almazrouei et al., Falcon, 2023 (one norm in 7B).
enum class Blocks : std::uint8_t { sequential, parallel, parallel_one_norm };

// Which linear layers have biases.
struct Biases {
  bool qkv = true, proj = true, feed_forward = true;
  // Not explicit: most networks have all of them or none.
  Biases(bool all = true) : qkv(all), proj(all), feed_forward(all) {}
  bool any() const { return qkv || proj || feed_forward; }
  friend bool operator==(const Biases&, const Biases&) = default;
};

// A mixture of experts in place of the feed-forward layer. Source: Fedus et al., Switch
// Transformers, 2021; DeepSeek-AI, DeepSeekMoE, 2024 (shared experts).
struct Experts {
  std::int64_t experts = 0;            // routed ones; 0: every layer is dense
  std::int64_t top_k = 1;              // of them, for each token
  std::int64_t ffn_hidden = 1;         // of one routed expert
  std::int64_t shared_ffn_hidden = 0;  // of all shared experts together; every token visits them
  std::int64_t first_dense = 0;        // layers before the first mixture
  std::int64_t every = 1;              // of the layers that follow, every n-th is a mixture
  std::int64_t groups = 1;             // of experts, of which the router chooses
  std::int64_t top_groups = 1;         // so many before it chooses experts in them
  bool biases = false;                 // of the router and of the experts (gpt-oss)
  bool clamped = false;                // both halves before the gate are kept in limits (gpt-oss)
  bool shared_gate = false;  // a column that scales what the shared experts add (Qwen2-MoE)
  // A number per expert that is added to its scores for the choice alone, and moved by its load
  // instead of a gradient; checkpoints hold it. Source: DeepSeek-V3, 2024, section 2.1.2.
  bool balance_bias = false;
};

// Layers whose tokens see only those next before them. Source: Beltagy et al., Longformer, 2020;
// Gemma Team, Gemma 2, 2024, section 2 (every second layer); Meta, Llama 4, 2025 (chunks).
struct Window {
  std::int64_t size = 0;          // tokens that a token sees, itself among them; 0: no such layer
  std::int64_t first = 0;         // layers before this one see all tokens
  std::int64_t global_every = 0;  // every n-th layer of the stack sees all tokens; 0: none does
  bool chunked = false;           // a token sees those of its own chunk of `size` tokens
  bool global_positions = true;   // layers that see all tokens have positions too
};

// Layers of a selective state space in place of attention (Mamba-2). Source: Dao and Gu,
// Transformers are SSMs, ICML 2024, sections 6 and 7.
struct Mamba {
  std::int64_t heads = 0;         // 0: there are none
  std::int64_t head_size = 64;    // P
  std::int64_t groups = 1;        // of heads that share B and C
  std::int64_t state_size = 128;  // N; a head's state is P x N
  std::int64_t convolution = 4;   // tokens of the causal convolution, of each channel by itself
  std::int64_t chunk = 128;       // tokens that meet in products; chunks hand on states
  bool used() const { return heads > 0; }
  std::int64_t inner() const { return heads * head_size; }
  // Channels of the convolution: x, B and C.
  std::int64_t convolved() const { return inner() + 2 * groups * state_size; }
  // Columns of the projection that makes the gate, these and a step for each head.
  std::int64_t projected() const { return inner() + convolved() + heads; }
};

// What a layer consists of, each part behind a norm and added to the stream.
enum class Content : std::uint8_t {
  whole,  // attention, then the feed-forward half
  attention,
  feed_forward,
  mamba,
};

// How far gradients go: through the layer, to its lowest trained weight, or not into it.
enum class Reach : std::uint8_t { passes, lowest, below };

// The ways in which layers of one stack differ.
struct LayerForm {
  bool mixture = false;   // of experts
  bool windowed = false;  // of Window
  Content content = Content::whole;
  bool frozen = false;  // it has neither trained weights nor adapters
  Reach reach = Reach::passes;
  friend bool operator==(const LayerForm&, const LayerForm&) = default;
};

// Multi-head latent attention (models/transformer/attention/latent_attention.cpp).
struct LatentAttention {
  std::int64_t key_value_rank = 0;  // 0: plain projections of queries, keys and values
  std::int64_t query_rank = 0;      // 0: queries are projected from the hidden states
  std::int64_t nope_size = 0;       // of a query's or key's head, without and with position
  std::int64_t rope_size = 0;
  std::int64_t value_size = 0;
  bool used() const { return key_value_rank > 0; }
  std::int64_t query_key_size() const { return nope_size + rope_size; }
};

// A stack of transformer layers, dense or mixtures of experts. By itself it is a decoder of the GPT
// or Llama kind; the networks below are made of such stacks.
struct Transformer {
  std::int64_t layers = 1;
  std::int64_t hidden = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;   // < heads: grouped-query attention
  std::int64_t head_size = 1;  // hidden / heads unless the network says otherwise
  std::int64_t ffn_hidden = 1;
  std::int64_t vocabulary = 1;
  std::int64_t max_positions = 0;  // rows of a learned position table; 0: the sequence length
  FeedForward feed_forward = FeedForward::gelu;
  Positional positional = Positional::learned;
  Norm norm = Norm::layer_norm;
  HeadNorm head_norm = HeadNorm::none;
  Biases biases;
  bool dropout = true;                      // of what blocks and embeddings hand on
  std::optional<bool> attention_dropout{};  // of scores; without: as `dropout`
  bool drops_scores() const { return attention_dropout.value_or(dropout); }
  bool tied_embeddings = true;
  bool causal = true;         // false: every token sees the whole of its sequence
  bool post_norm = false;     // norms stand after the residual additions, and none after the stack
  std::int64_t buckets = 32;  // of relative positions
  BlockNorms block_norms = BlockNorms::before;
  Blocks blocks = Blocks::sequential;
  bool embedding_norm = false;   // of what the embedding hands on
  bool attention_sinks = false;  // a score per head that no key has (gpt-oss)
  Experts moe;
  LatentAttention latent;
  Window window;
  Mamba mamba;
  // Of a hybrid stack a letter for each layer, as Megatron-LM's --hybrid-layer-pattern has them:
  // M Mamba, * attention, - feed-forward, E experts. Empty: all layers are whole.
  std::string pattern;

  // Of a tensor-parallel rank: its part, or, of fewer heads than ranks, one that several hold.
  std::int64_t kv_heads_of_rank(int tensor) const {
    return kv_heads < tensor ? 1 : kv_heads / tensor;
  }
  bool parallel() const { return blocks != Blocks::sequential; }
  bool gated() const {
    return feed_forward == FeedForward::swiglu || feed_forward == FeedForward::geglu;
  }
  // Whether layer number `layer`, from 0, is a mixture of experts.
  bool is_mixture(std::int64_t layer) const {
    if (!pattern.empty()) return letter(layer) == 'E';
    return moe.experts > 0 && layer >= moe.first_dense &&
           (layer - moe.first_dense + 1) % moe.every == 0;
  }
  bool is_windowed(std::int64_t layer) const {
    return window.size > 0 && layer >= window.first &&
           (window.global_every == 0 || (layer + 1) % window.global_every != 0);
  }
  // Whether any layer has this part, a letter of `pattern`: of whole layers, all but M.
  bool has_part(char part) const {
    return pattern.empty() ? part != 'M' : pattern.find(part) != std::string::npos;
  }
  // Requires: a pattern.
  char letter(std::int64_t layer) const { return pattern[static_cast<std::size_t>(layer)]; }
  Content content_of(std::int64_t layer) const {
    if (pattern.empty()) return Content::whole;
    return letter(layer) == 'M'   ? Content::mamba
           : letter(layer) == '*' ? Content::attention
                                  : Content::feed_forward;
  }
  LayerForm form_of(std::int64_t layer) const {
    return {is_mixture(layer), is_windowed(layer), content_of(layer)};
  }
};

// An encoder with the heads of its pre-training. Source: Devlin et al., BERT, NAACL 2019; counts
// and heads as in Hugging Face's BertForPreTraining.
struct Encoder {
  Transformer stack;             // not causal; with post_norm its embedding is normalised too
  std::int64_t token_types = 2;  // rows of a second embedding; 0: there is none
  bool masked_lm = true;         // dense, GELU, norm, and logits with a bias
  bool next_sentence = true;     // a dense layer and tanh on each first token, then two classes
};

// An encoder, and a decoder whose layers attend to the encoder's output between self-attention and
// feed-forward. Both embed with one matrix. Source: Raffel et al., T5, JMLR 2020.
struct EncoderDecoder {
  Transformer stack;  // of both; its `layers` are the encoder's, `tied_embeddings` the output's
  std::int64_t decoder_layers = 1;
};

// An encoder of image patches with a classifier. Source: Dosovitskiy et al., An Image is Worth
// 16x16 Words, ICLR 2021.
struct VisionTransformer {
  Transformer stack;  // not causal; it has no vocabulary
  std::int64_t channels = 3, height = 224, width = 224;
  std::int64_t patch = 16;  // pixels of a side
  std::int64_t classes = 1000;
  bool class_token = true;  // read by the classifier; without: the mean of all patches is
  std::int64_t patches() const { return (height / patch) * (width / patch); }
  std::int64_t sequence_length() const { return patches() + (class_token ? 1 : 0); }
};

const Family<Transformer>& row_of(const Transformer*);
const Family<Encoder>& row_of(const Encoder*);
const Family<EncoderDecoder>& row_of(const EncoderDecoder*);
const Family<VisionTransformer>& row_of(const VisionTransformer*);

}  // namespace trainyard::models
