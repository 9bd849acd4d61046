// /model as written -> the network.
#include <fmt/format.h>

#include <algorithm>

#include "models/convolutional/layer_graph.h"
#include "sim/base/check.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

using models::Network;
using models::Transformer;

namespace {

constexpr std::int64_t kSmallestImage = 32;  // networks halve it five times
constexpr std::int64_t kUsualImage = 224;

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
Transformer assemble_stack(const ModelSection& section, Findings& findings) {
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
  if (relative && section.kind() != NetworkKind::encoder_decoder)
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

Network assemble_encoder(const ModelSection& section, Transformer stack) {
  const EncoderSection heads = section.encoder.value_or(EncoderSection{});
  stack.causal = false;
  stack.post_norm = heads.post_norm;
  return models::Encoder{.stack = stack,
                         .token_types = heads.token_types,
                         .masked_lm = heads.masked_lm,
                         .next_sentence = heads.next_sentence};
}

Network assemble_encoder_decoder(const ModelSection& section, const Transformer& stack) {
  return models::EncoderDecoder{
      .stack = stack, .decoder_layers = section.decoder ? section.decoder->layers : stack.layers};
}

Network assemble_vision(const ModelSection& section, Transformer stack) {
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

Network assemble_written(const ModelSection& section, Findings& findings) {
  if (section.kind() == NetworkKind::recommender)
    return assemble_recommender(section.recommender, findings);
  const Transformer stack = assemble_stack(section, findings);
  switch (section.kind()) {
    case NetworkKind::transformer: return stack;
    case NetworkKind::encoder: return assemble_encoder(section, stack);
    case NetworkKind::encoder_decoder: return assemble_encoder_decoder(section, stack);
    case NetworkKind::vision_transformer: return assemble_vision(section, stack);
    case NetworkKind::recommender: break;
  }
  return stack;
}

Network assemble_built(const std::string& name, const ModelSection& section, Findings& findings) {
  std::int64_t height = kUsualImage, width = kUsualImage;
  const std::vector<std::int64_t>& size = section.input.image_size;
  if (size.size() == 3) {
    if (size[0] != 3)
      findings.error("/model/input/image_size",
                     fmt::format("{} reads images of 3 channels, got {}", name, size[0]));
    height = size[1];
    width = size[2];
  }
  if (height < kSmallestImage || width < kSmallestImage) {
    findings.error("/model/input/image_size",
                   fmt::format("{} needs at least {}x{} pixels, got {}x{}", name, kSmallestImage,
                               kSmallestImage, height, width));
    height = width = kUsualImage;
  }
  for (const models::NetworkBuilder& builder : models::kNetworkBuilders) {
    if (builder.name == name) return builder.build(height, width);
  }
  TRAINYARD_CHECK(false, "no builder of that name: {}", name);
  return {};
}

}  // namespace

Network assemble_network(const ModelSection& section, const std::string& name, Findings& findings) {
  return section.built ? assemble_built(name, section, findings)
                       : assemble_written(section, findings);
}

}  // namespace trainyard::scenario
