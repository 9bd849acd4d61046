// What is trained: the tables of /model.
#include "sim/json/schema.h"
#include "sim/scenario/topics/sections.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::scenario {

using models::FeedForward;
using models::Norm;
using models::Positional;

namespace {

using json::anything;
using json::between;
using json::Choice;
using json::optional;
using json::required;

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

// What only some kinds of networks have. A section that would change nothing is refused.
void visit_kinds(json::Fields& f, ModelSection& s, bool has_input) {
  const auto only = [&](bool given, NetworkKind kind, const char* key, const char* why) {
    if (given && s.kind() != kind) f.problem(key, why);
  };
  only(has_input, NetworkKind::vision_transformer, "input",
       "only networks of images have an input size");
  only(f.section("encoder", s.encoder, "Norms, token types and heads of kind encoder."),
       NetworkKind::encoder, "encoder", "only kind encoder has these heads");
  only(f.section("decoder", s.decoder, "The decoder of kind encoder_decoder."),
       NetworkKind::encoder_decoder, "decoder", "only kind encoder_decoder has a second stack");
  only(f.section("vision", s.vision, "Patches and classes of kind vision_transformer."),
       NetworkKind::vision_transformer, "vision", "only kind vision_transformer has patches");
  if (s.kind() == NetworkKind::transformer) return;
  if (s.moe) f.problem("moe", "experts are described for decoders only");
  if (s.transformer.latent.used())
    f.problem("latent_attention", "latent attention is described for decoders only");
}

// The vocabulary's matrices, which images do not have.
void visit_vocabulary(json::Fields& f, ModelSection& s) {
  const bool images = s.kind() == NetworkKind::vision_transformer;
  const bool vocab = f.field("vocab", s.vocabulary, between(1, 1e9), "Entries of the vocabulary.");
  if (!images && !vocab)
    f.problem("vocab", "is required and missing", "Entries of the vocabulary.");
  if (images && vocab) f.problem("vocab", "images have classes, under /model/vision");
  if (f.field("tied_embeddings", s.transformer.tied_embeddings, optional,
              "The output layer shares the embedding's weights.") &&
      images)
    f.problem("tied_embeddings", "images have no embedding to share");
}

void visit_positions(json::Fields& f, ModelSection& s) {
  const bool images = s.kind() == NetworkKind::vision_transformer;
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

}  // namespace

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

void visit_fields(json::Fields& f, ImageInput& s) {
  f.list("image_size", s.image_size, required, between(1, 65536), "Channels, height, width.");
  if (!s.image_size.empty() && s.image_size.size() != 3)
    f.problem("image_size", "expected three numbers: channels, height, width");
}

namespace {

// What networks of all kinds may say. Whether there is an input.
bool visit_common(json::Fields& f, ModelSection& s) {
  f.source("preset", "A file of configs/models, or a network built by code (resnet50, vgg16).");
  f.source("hf_config", "Path of a Hugging Face config.json, relative to this file.");
  f.accepted("description", "For people.");
  f.accepted("source", "Where the numbers come from.");
  return f.section("input", s.input, optional, "What a network of images sees.");
}

void visit_transformer(json::Fields& f, ModelSection& s, bool has_input) {
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

}  // namespace

void visit_fields(json::Fields& f, ModelSection& s) {
  if (s.built) {
    visit_common(f, s);
    return;
  }
  f.not_yet({"layers"});
  f.alternatives({"kind", optional, anything,
                  "Family of the network; transformer is a decoder alone, of the GPT or Llama "
                  "kind."},
                 kNetworkKinds, s.family, [&s](json::Fields& fields) {
                   const bool has_input = visit_common(fields, s);
                   if (s.kind() != NetworkKind::recommender)
                     return visit_transformer(fields, s, has_input);
                   if (has_input)
                     fields.problem("input", "only networks of images have an input size");
                   visit_fields(fields, s.recommender);
                 });
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
