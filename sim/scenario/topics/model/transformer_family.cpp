// Networks of transformer layers: kinds transformer, encoder, encoder_decoder, vision_transformer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "models/transformer/networks.h"
#include "sim/json/schema.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/model/model_family.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::models {

void visit_fields(json::Fields& f, LatentAttention& s);

}  // namespace trainyard::models

namespace trainyard::scenario {

using models::FeedForward;
using models::Network;
using models::Norm;
using models::Positional;
using models::Transformer;

namespace {

using json::between;
using json::Choice;
using json::optional;
using json::required;

enum class StackKind : std::uint8_t { decoder, encoder, encoder_decoder, vision };

struct MoeSection {
  std::int64_t experts = 1, top_k = 1;
  std::optional<std::int64_t> expert_ffn_hidden, shared_ffn_hidden;
  std::int64_t shared_experts = 0, first_dense = 0, every = 1;
  std::int64_t groups = 1;
  std::optional<std::int64_t> top_groups;
};

struct EncoderSection {
  bool post_norm = true;
  std::int64_t token_types = 2;
  bool masked_lm = true, next_sentence = true;
};

struct DecoderSection {
  std::int64_t layers = 1;
};

struct VisionSection {
  std::int64_t patch_size = 16, classes = 1000;
  bool class_token = true;
};

struct StackSection {
  StackKind kind = StackKind::decoder;
  models::Transformer transformer;
  std::optional<std::int64_t> kv_heads, head_size, ffn_hidden, max_positions, vocabulary, buckets;
  std::optional<EncoderSection> encoder;
  std::optional<DecoderSection> decoder;
  std::optional<VisionSection> vision;
  std::optional<MoeSection> moe;
  ImageInput input;
};

constexpr std::array<Choice<FeedForward>, 4> kFeedForwards = {{{"gelu", FeedForward::gelu},
                                                               {"relu", FeedForward::relu},
                                                               {"swiglu", FeedForward::swiglu},
                                                               {"geglu", FeedForward::geglu}}};
constexpr std::array<Choice<Positional>, 4> kPositionals = {{{"learned", Positional::learned},
                                                             {"rope", Positional::rope},
                                                             {"none", Positional::none},
                                                             {"relative", Positional::relative}}};
constexpr std::array<Choice<bool>, 2> kNormPositions = {{{"post", true}, {"pre", false}}};
constexpr std::array<Choice<Norm>, 2> kNorms = {
    {{"layer_norm", Norm::layer_norm}, {"rms_norm", Norm::rms_norm}}};

void visit_fields(json::Fields& f, EncoderSection& s) {
  f.choice("norm_position", s.post_norm, kNormPositions, optional,
           "Norms after the residual additions, as BERT has them, or before each block.");
  f.field("token_types", s.token_types, optional, between(0, kMostWidth),
          "Rows of the token-type embedding; 0: none.");
  f.field("masked_lm", s.masked_lm, optional, "The head that predicts masked tokens.");
  f.field("next_sentence", s.next_sentence, optional,
          "The pooler and the head that tells whether two sentences follow each other.");
}

void visit_fields(json::Fields& f, DecoderSection& s) {
  f.field("layers", s.layers, required, between(1, kMostLayers),
          "Layers of the decoder. Without the section: as many as the encoder's.");
}

void visit_fields(json::Fields& f, VisionSection& s) {
  f.field("patch_size", s.patch_size, optional, between(1, 65536), "Pixels of a patch's side.");
  f.field("classes", s.classes, optional, between(1, kMostWidth), "Of the classifier.");
  f.field("class_token", s.class_token, optional,
          "The classifier reads a token of its own; else the mean of the patches.");
}

void visit_fields(json::Fields& f, MoeSection& s) {
  f.field("experts", s.experts, required, between(1, 1 << 16), "Routed experts of a layer.");
  f.field("top_k", s.top_k, required, between(1, 1 << 16), "Experts that each token visits.");
  f.field("expert_ffn_hidden", s.expert_ffn_hidden, between(1, kMostWidth),
          "Width of one routed expert. Default: ffn_hidden.");
  f.field("shared_experts", s.shared_experts, optional, between(0, 1 << 16),
          "Experts that every token visits.");
  f.field("shared_ffn_hidden", s.shared_ffn_hidden, between(1, kMostWidth),
          "Width of the shared experts together. Default: that of as many routed ones.");
  f.field("first_dense", s.first_dense, optional, between(0, kMostLayers),
          "Dense layers before the first one with experts.");
  f.field("every", s.every, optional, between(1, kMostLayers),
          "Of the layers that follow, each n-th has experts.");
  f.field("groups", s.groups, optional, between(1, 1024),
          "Equal groups of experts, of which the router chooses some for each token (n_group).");
  f.field("top_groups", s.top_groups, between(1, 1024),
          "Groups that a token's experts are in (topk_group). Default: all.");
}

// What only some kinds of networks have. A section that would change nothing is refused.
void visit_kinds(json::Fields& f, StackSection& s, bool has_input) {
  const auto only = [&](bool given, StackKind kind, const char* key, const char* why) {
    if (given && s.kind != kind) f.problem(key, why);
  };
  only(has_input, StackKind::vision, "input", "only networks of images have an input size");
  only(f.section("encoder", s.encoder, "Norms, token types and heads of kind encoder."),
       StackKind::encoder, "encoder", "only kind encoder has these heads");
  only(f.section("decoder", s.decoder, "The decoder of kind encoder_decoder."),
       StackKind::encoder_decoder, "decoder", "only kind encoder_decoder has a second stack");
  only(f.section("vision", s.vision, "Patches and classes of kind vision_transformer."),
       StackKind::vision, "vision", "only kind vision_transformer has patches");
  if (s.kind == StackKind::decoder) return;
  if (s.moe) f.problem("moe", "experts are described for decoders only");
  if (s.transformer.latent.used())
    f.problem("latent_attention", "latent attention is described for decoders only");
}

// The vocabulary's matrices, which images do not have.
void visit_vocabulary(json::Fields& f, StackSection& s) {
  const bool images = s.kind == StackKind::vision;
  const bool vocab = f.field("vocab", s.vocabulary, between(1, 1e9), "Entries of the vocabulary.");
  if (!images && !vocab)
    f.problem("vocab", "is required and missing", "Entries of the vocabulary.");
  if (images && vocab) f.problem("vocab", "images have classes, under /model/vision");
  if (f.field("tied_embeddings", s.transformer.tied_embeddings, optional,
              "The output layer shares the embedding's weights.") &&
      images)
    f.problem("tied_embeddings", "images have no embedding to share");
}

void visit_positions(json::Fields& f, StackSection& s) {
  const bool images = s.kind == StackKind::vision;
  f.not_yet({"alibi"});
  if (f.choice("positional", s.transformer.positional, kPositionals, optional,
               "How positions enter; relative is T5's bias of the scores.") &&
      images && s.transformer.positional != Positional::learned)
    f.problem("positional", "patches have learned positions");
  if (f.field("max_positions", s.max_positions, between(1, kMostTokens),
              "Rows of a learned position table. Default: the sequence length.") &&
      images)
    f.problem("max_positions", "the image and its patches say how many positions there are");
  f.field("position_buckets", s.buckets, between(1, kMostTokens),
          "Rows of a table of relative positions. Default: 32.");
}

void visit_transformer(json::Fields& f, StackSection& s, bool has_input) {
  models::Transformer& t = s.transformer;
  f.field("layers", t.layers, required, between(1, kMostLayers), "Transformer layers.");
  f.field("hidden", t.hidden, required, between(1, kMostWidth), "Width of the residual stream.");
  f.field("heads", t.heads, required, between(1, kMostWidth), "Attention heads.");
  f.field("kv_heads", s.kv_heads, between(1, kMostWidth),
          "Heads of keys and values; fewer than heads is grouped-query attention. Default: heads.");
  f.field("head_dim", s.head_size, between(1, kMostWidth),
          "Width of a head. Default: hidden / heads.");
  f.field("ffn_hidden", s.ffn_hidden, between(1, kMostWidth),
          "Width of the feed-forward layer. Default: 4 x hidden.");
  f.choice("ffn", t.feed_forward, kFeedForwards, optional, "Activation of the feed-forward layer.");
  visit_vocabulary(f, s);
  visit_positions(f, s);
  f.choice("norm", t.norm, kNorms, optional, "Normalisation before each block.");
  f.field("biases", t.biases, optional, "Linear layers have biases.");
  f.field("dropout", t.dropout, optional, "Dropout after attention and feed-forward.");
  MoeSection moe = s.moe.value_or(MoeSection{});
  if (f.section("moe", moe, optional, "Experts in place of the feed-forward layer.")) s.moe = moe;
  f.section("latent_attention", t.latent, optional,
            "Queries, keys and values expanded from compressed states.");
  visit_kinds(f, s, has_input);
  f.unsupported("chakra_et", "a network from Chakra traces; describe its layers");
}

bool check_groups(const MoeSection& moe, Findings& findings) {
  if (moe.experts % moe.groups != 0) {
    findings.error("/model/moe/groups",
                   fmt::format("{} experts in {} groups", moe.experts, moe.groups),
                   "groups must divide experts");
    return false;
  }
  const std::int64_t chosen = moe.top_groups.value_or(moe.groups);
  const std::int64_t offered = chosen * (moe.experts / moe.groups);
  if (chosen > moe.groups) {
    findings.error("/model/moe/top_groups", fmt::format("{} of {} groups", chosen, moe.groups),
                   fmt::format("the most is {}", moe.groups));
    return false;
  }
  if (moe.top_k <= moe.experts && moe.top_k > offered) {
    findings.error(
        "/model/moe/top_groups",
        fmt::format("experts in the chosen groups: {}, fewer than top_k ({})", offered, moe.top_k));
    return false;
  }
  return true;
}

// The stack of layers, whatever network it is part of.
Transformer assemble_stack(const StackSection& section, Findings& findings) {
  Transformer t = section.transformer;
  t.kv_heads = section.kv_heads.value_or(t.heads);
  if (!section.head_size && t.hidden % t.heads != 0)
    findings.error("/model/hidden",
                   fmt::format("hidden {} is not divisible by {} heads", t.hidden, t.heads),
                   "state head_dim if that is meant");
  t.head_size = section.head_size.value_or(std::max<std::int64_t>(1, t.hidden / t.heads));
  t.ffn_hidden = section.ffn_hidden.value_or(4 * t.hidden);
  t.max_positions = section.max_positions.value_or(0);
  t.vocabulary = section.vocabulary.value_or(1);
  t.buckets = section.buckets.value_or(t.buckets);
  const bool relative = t.positional == models::Positional::relative;
  if (relative && section.kind != StackKind::encoder_decoder)
    findings.error("/model/positional", "relative positions are described for kind encoder_decoder",
                   "learned, rope and none are available");
  if (section.buckets && !relative)
    findings.error("/model/position_buckets", "only relative positions have buckets", "remove it");
  if (section.moe) {
    const MoeSection& moe = *section.moe;
    t.moe.experts = moe.experts;
    t.moe.top_k = moe.top_k;
    t.moe.ffn_hidden = moe.expert_ffn_hidden.value_or(t.ffn_hidden);
    t.moe.shared_ffn_hidden = moe.shared_ffn_hidden.value_or(moe.shared_experts * t.moe.ffn_hidden);
    t.moe.first_dense = moe.first_dense;
    t.moe.every = moe.every;
    if (check_groups(moe, findings)) {
      t.moe.groups = moe.groups;
      t.moe.top_groups = moe.top_groups.value_or(moe.groups);
    }
    if (moe.top_k > moe.experts)
      findings.error("/model/moe/top_k", fmt::format("{} of {} experts", moe.top_k, moe.experts),
                     fmt::format("the most is {}", moe.experts));
    if (t.biases)
      findings.error("/model/biases", "experts have no biases", "write \"biases\": false");
  }
  if (t.latent.used() && t.biases)
    findings.error("/model/biases", "latent attention has no biases", "write \"biases\": false");
  return t;
}

Network assemble_encoder(const StackSection& section, Transformer stack) {
  const EncoderSection heads = section.encoder.value_or(EncoderSection{});
  stack.causal = false;
  stack.post_norm = heads.post_norm;
  return models::Encoder{.stack = stack,
                         .token_types = heads.token_types,
                         .masked_lm = heads.masked_lm,
                         .next_sentence = heads.next_sentence};
}

Network assemble_encoder_decoder(const StackSection& section, const Transformer& stack) {
  return models::EncoderDecoder{
      .stack = stack, .decoder_layers = section.decoder ? section.decoder->layers : stack.layers};
}

Network assemble_vision(const StackSection& section, Transformer stack) {
  const VisionSection vision = section.vision.value_or(VisionSection{});
  const std::vector<std::int64_t>& size = section.input.image_size;
  stack.causal = false;
  models::VisionTransformer network{.stack = stack,
                                    .patch = vision.patch_size,
                                    .classes = vision.classes,
                                    .class_token = vision.class_token};
  if (size.size() == 3) {
    network.channels = size[0];
    network.height = size[1];
    network.width = size[2];
  }
  return network;
}

class StackFamily final : public ModelFamily {
 public:
  explicit StackFamily(StackKind kind) { section_.kind = kind; }

  void visit(json::Fields& f) override {
    visit_transformer(f, section_, visit_image_input(f, section_.input));
  }

  Network assemble(const json::Value&, Findings& findings) const override {
    const Transformer stack = assemble_stack(section_, findings);
    switch (section_.kind) {
      case StackKind::decoder: return stack;
      case StackKind::encoder: return assemble_encoder(section_, stack);
      case StackKind::encoder_decoder: return assemble_encoder_decoder(section_, stack);
      case StackKind::vision: return assemble_vision(section_, stack);
    }
    return stack;
  }

  void fill_from(const Network& network) override {
    const Transformer* stack = network.stack();
    if (stack == nullptr) return;
    section_.kv_heads = stack->kv_heads;
    section_.head_size = stack->head_size;
    section_.ffn_hidden = stack->ffn_hidden;
  }

 private:
  StackSection section_;
};

}  // namespace

std::unique_ptr<ModelFamily> transformer_family() {
  return std::make_unique<StackFamily>(StackKind::decoder);
}
std::unique_ptr<ModelFamily> encoder_family() {
  return std::make_unique<StackFamily>(StackKind::encoder);
}
std::unique_ptr<ModelFamily> encoder_decoder_family() {
  return std::make_unique<StackFamily>(StackKind::encoder_decoder);
}
std::unique_ptr<ModelFamily> vision_transformer_family() {
  return std::make_unique<StackFamily>(StackKind::vision);
}

}  // namespace trainyard::scenario

namespace trainyard::models {

void visit_fields(json::Fields& f, LatentAttention& s) {
  f.field("kv_rank", s.key_value_rank, json::required, json::between(1, scenario::kMostWidth),
          "Width of the compressed keys and values.");
  f.field("q_rank", s.query_rank, json::optional, json::between(0, scenario::kMostWidth),
          "Width of the compressed queries; 0: they are projected from the hidden states.");
  f.field("nope_head_dim", s.nope_size, json::required, json::between(1, scenario::kMostWidth),
          "Part of a query's and key's head without positions.");
  f.field("rope_head_dim", s.rope_size, json::required, json::between(1, scenario::kMostWidth),
          "Part of a head that is rotated; one key of it serves all heads.");
  f.field("v_head_dim", s.value_size, json::required, json::between(1, scenario::kMostWidth),
          "Head of the values.");
}

}  // namespace trainyard::models
