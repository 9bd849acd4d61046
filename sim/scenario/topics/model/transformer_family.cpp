// Networks of transformer layers: kinds transformer, encoder, encoder_decoder, vision_transformer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "models/transformer/networks.h"
#include "sim/json/schema.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/model/decoder_sections.h"
#include "sim/scenario/topics/model/model_family.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::models {

void visit_fields(json::Fields& f, LatentAttention& s);

}  // namespace trainyard::models

namespace trainyard::scenario {

using models::BlockNorms;
using models::Blocks;
using models::FeedForward;
using models::HeadNorm;
using models::Network;
using models::Norm;
using models::Positional;
using models::Transformer;

namespace {

using json::between;
using json::Choice;
using json::optional;
using json::required;

// Which linear layers of attention have biases.
enum class AttentionBiases : std::uint8_t { none, qkv, all };

enum class StackKind : std::uint8_t { decoder, encoder, encoder_decoder, vision };

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
  std::optional<std::int64_t> kv_heads, head_size, ffn_hidden, max_positions, vocabulary;
  Option<std::int64_t> buckets = models::Transformer{}.buckets;
  std::optional<EncoderSection> encoder;
  std::optional<DecoderSection> decoder;
  std::optional<VisionSection> vision;
  bool biases = true;
  std::optional<AttentionBiases> attention_biases;
  std::optional<bool> ffn_biases, attention_sinks, embedding_norm;
  std::optional<models::BlockNorms> block_norms;
  std::optional<models::Blocks> blocks;
  std::optional<models::HeadNorm> head_norm;
  std::optional<MoeSection> moe;
  std::optional<WindowSection> window;
  HybridSection hybrid;
  ImageInput input;
};

constexpr std::array<Choice<FeedForward>, 5> kFeedForwards = {
    {{"gelu", FeedForward::gelu},
     {"relu", FeedForward::relu},
     {"squared_relu", FeedForward::squared_relu},
     {"swiglu", FeedForward::swiglu},
     {"geglu", FeedForward::geglu}}};
constexpr std::array<Choice<Positional>, 5> kPositionals = {{{"learned", Positional::learned},
                                                             {"rope", Positional::rope},
                                                             {"none", Positional::none},
                                                             {"relative", Positional::relative},
                                                             {"alibi", Positional::alibi}}};
constexpr std::array<Choice<bool>, 2> kNormPositions = {{{"post", true}, {"pre", false}}};
constexpr std::array<Choice<AttentionBiases>, 3> kAttentionBiases = {
    {{"none", AttentionBiases::none},
     {"qkv", AttentionBiases::qkv},
     {"all", AttentionBiases::all}}};
constexpr std::array<Choice<BlockNorms>, 3> kBlockNorms = {
    {{"before", BlockNorms::before}, {"around", BlockNorms::around}, {"after", BlockNorms::after}}};
constexpr std::array<Choice<Blocks>, 3> kBlocks = {
    {{"sequential", Blocks::sequential},
     {"parallel", Blocks::parallel},
     {"parallel_one_norm", Blocks::parallel_one_norm}}};
constexpr std::array<Choice<HeadNorm>, 4> kHeadNorms = {{{"none", HeadNorm::none},
                                                         {"per_head", HeadNorm::per_head},
                                                         {"whole", HeadNorm::whole},
                                                         {"unweighted", HeadNorm::unweighted}}};
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
  if (s.window) f.problem("window", "windows are described for decoders only");
  if (s.hybrid.pattern) f.problem("layer_pattern", "patterns are described for decoders only");
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
  if (f.choice("positional", s.transformer.positional, kPositionals, optional,
               "How positions enter; relative is T5's bias of the scores.") &&
      images && s.transformer.positional != Positional::learned)
    f.problem("positional", "patches have learned positions");
  if (f.field("max_positions", s.max_positions, between(1, kMostTokens),
              "Rows of a learned position table. Default: the sequence length.") &&
      images)
    f.problem("max_positions", "the image and its patches say how many positions there are");
  f.field("position_buckets", s.buckets, between(1, kMostTokens),
          "Rows of a table of relative positions.");
}

// What not every layer of attention and feed-forward has.
void visit_blocks(json::Fields& f, StackSection& s) {
  f.choice("block_norms", s.block_norms, kBlockNorms,
           "Norms of a layer: before attention and the feed-forward layer (default), around them "
           "(Gemma 2), after them (OLMo 2).");
  f.choice("blocks", s.blocks, kBlocks,
           "sequential (default); parallel: the feed-forward layer reads what attention reads, "
           "with a norm of its own (GPT-NeoX) or the same one (Falcon 7B).");
  f.field("embedding_norm", s.embedding_norm, json::anything,
          "A norm of what the embedding hands on (BLOOM).");
  f.field("attention_sinks", s.attention_sinks, json::anything,
          "A score per head that no key has (gpt-oss).");
}

void visit_biases(json::Fields& f, StackSection& s) {
  f.field("biases", s.biases, optional, "Linear layers have biases.");
  f.choice("attention_biases", s.attention_biases, kAttentionBiases,
           "Of attention: none, qkv (Qwen2), all. Default: all or none, as biases says.");
  f.field("ffn_biases", s.ffn_biases, json::anything,
          "Of the feed-forward layer. Default: as biases says.");
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
  f.choice("head_norm", s.head_norm, kHeadNorms,
           "Norms of queries and keys: none (default), per_head (Qwen3), whole (OLMo 2: all heads "
           "together), unweighted (Llama 4).");
  visit_blocks(f, s);
  visit_biases(f, s);
  f.field("dropout", t.dropout, optional,
          "Dropout after attention, feed-forward and embedding, and of scores.");
  f.field("attention_dropout", t.attention_dropout, json::anything,
          "Dropout of attention's scores. Default: as dropout.");
  MoeSection moe = s.moe.value_or(MoeSection{});
  if (f.section("moe", moe, optional, "Experts in place of the feed-forward layer.")) s.moe = moe;
  f.section("latent_attention", t.latent, optional,
            "Queries, keys and values expanded from compressed states.");
  f.section("window", s.window, "Layers whose tokens see only those next before them.");
  visit_hybrid(f, s.hybrid);
  visit_kinds(f, s, has_input);
  f.unsupported("chakra_et", "a network from Chakra traces; describe its layers");
}

models::Biases assemble_biases(const StackSection& section) {
  models::Biases biases = section.biases;
  if (section.attention_biases) {
    biases.qkv = *section.attention_biases != AttentionBiases::none;
    biases.proj = *section.attention_biases == AttentionBiases::all;
  }
  biases.feed_forward = section.ffn_biases.value_or(section.biases);
  return biases;
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
  t.buckets = section.buckets;
  t.head_norm = section.head_norm.value_or(HeadNorm::none);
  t.biases = assemble_biases(section);
  t.block_norms = section.block_norms.value_or(BlockNorms::before);
  t.blocks = section.blocks.value_or(Blocks::sequential);
  t.embedding_norm = section.embedding_norm.value_or(false);
  t.attention_sinks = section.attention_sinks.value_or(false);
  const bool relative = t.positional == models::Positional::relative;
  if (relative && section.kind != StackKind::encoder_decoder)
    findings.error("/model/positional", "relative positions are described for kind encoder_decoder",
                   "learned, rope and none are available");
  if (section.buckets.is_said() && !relative)
    findings.error("/model/position_buckets", "only relative positions have buckets", "remove it");
  if (section.max_positions && t.positional != models::Positional::learned)
    findings.warning("/model/max_positions", "means nothing: it has no table of positions",
                     "remove it, or set positional to \"learned\"");
  if (section.window) t.window = assemble_window(*section.window);
  if (section.moe) assemble_moe(*section.moe, t, findings);
  assemble_hybrid(section.hybrid, t, findings);
  if (t.latent.used() && (t.biases.qkv || t.biases.proj))
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
