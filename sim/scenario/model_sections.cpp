// What is trained: the tables of /model.
#include "sim/json/schema.h"
#include "sim/scenario/sections.h"

namespace trainyard {
namespace {

using json::anything;
using json::between;
using json::Choice;
using json::optional;
using json::required;

// Upper ends that keep every product of sizes within 64 bits; no network comes near.
constexpr double kMostLayers = 1e5;
constexpr double kMostWidth = 1e7;
constexpr double kMostTokens = 1e8;

constexpr std::array<Choice<FeedForward>, 4> kFeedForwards = {{{"gelu", FeedForward::gelu},
                                                               {"relu", FeedForward::relu},
                                                               {"swiglu", FeedForward::swiglu},
                                                               {"geglu", FeedForward::geglu}}};
constexpr std::array<Choice<Positional>, 3> kPositionals = {
    {{"learned", Positional::learned}, {"rope", Positional::rope}, {"none", Positional::none}}};
constexpr std::array<Choice<Norm>, 2> kNorms = {
    {{"layer_norm", Norm::layer_norm}, {"rms_norm", Norm::rms_norm}}};

}  // namespace

void visit_fields(json::Fields& f, ImageInput& s) {
  f.list("image_size", s.image_size, required, between(1, 65536), "Channels, height, width.");
  if (!s.image_size.empty() && s.image_size.size() != 3)
    f.problem("image_size", "expected three numbers: channels, height, width");
}

void visit_fields(json::Fields& f, ModelSection& s) {
  f.source("preset", "A file of configs/models, or a network built by code (resnet50, vgg16).");
  f.source("hf_config", "Path of a Hugging Face config.json, relative to this file.");
  f.accepted("description", "For people.");
  f.accepted("source", "Where the numbers come from.");
  const bool has_input =
      f.section("input", s.input, optional, "What a convolutional network sees.");
  if (s.built) return;
  if (has_input) f.problem("input", "only networks of images have an input size");
  Transformer& t = s.transformer;
  std::string kind = "transformer";
  f.not_yet({"layers"});
  f.name("kind", kind, std::array<std::string_view, 1>{"transformer"}, optional,
         "Family of the network.");
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
  f.field("vocab", t.vocabulary, required, between(1, 1e9), "Entries of the vocabulary.");
  f.not_yet({"alibi"});
  f.choice("positional", t.positional, kPositionals, optional, "How positions enter.");
  f.field("max_positions", s.max_positions, between(1, kMostTokens),
          "Rows of a learned position table. Default: the sequence length.");
  f.choice("norm", t.norm, kNorms, optional, "Normalisation before each block.");
  f.field("biases", t.biases, optional, "Linear layers have biases.");
  f.field("dropout", t.dropout, optional, "Dropout after attention and feed-forward.");
  f.field("tied_embeddings", t.tied_embeddings, optional,
          "The output layer shares the embedding's weights.");
  MoeSection moe = s.moe.value_or(MoeSection{});
  if (f.section("moe", moe, optional, "Experts in place of the feed-forward layer.")) s.moe = moe;
  f.section("latent_attention", t.latent, optional,
            "Queries, keys and values expanded from compressed states.");
  f.unsupported("chakra_et", "a network from Chakra traces; describe its layers");
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

void visit_fields(json::Fields& f, LatentAttention& s) {
  f.field("kv_rank", s.key_value_rank, required, between(1, kMostWidth),
          "Width of the compressed keys and values.");
  f.field("q_rank", s.query_rank, optional, between(0, kMostWidth),
          "Width of the compressed queries; 0: they are projected from the hidden states.");
  f.field("nope_head_dim", s.nope_size, required, between(1, kMostWidth),
          "Part of a query's and key's head without positions.");
  f.field("rope_head_dim", s.rope_size, required, between(1, kMostWidth),
          "Part of a head that is rotated; one key of it serves all heads.");
  f.field("v_head_dim", s.value_size, required, between(1, kMostWidth), "Head of the values.");
}

}  // namespace trainyard
