// Small networks of the families that have encoders, for tests of whole steps.
#pragma once

#include "models/network.h"

namespace trainyard::testing {

inline Transformer small_stack(std::int64_t layers) {
  Transformer stack;
  stack.layers = layers;
  stack.hidden = 512;
  stack.heads = stack.kv_heads = 8;
  stack.head_size = 64;
  stack.ffn_hidden = 2048;
  stack.vocabulary = 8192;
  return stack;
}

inline Encoder small_bert(std::int64_t layers) {
  Encoder network;
  network.stack = small_stack(layers);
  network.stack.causal = false;
  network.stack.post_norm = true;
  return network;
}

inline EncoderDecoder small_t5(std::int64_t encoder, std::int64_t decoder) {
  EncoderDecoder network;
  network.stack = small_stack(encoder);
  network.stack.positional = Positional::relative;
  network.stack.norm = Norm::rms_norm;
  network.stack.biases = false;
  network.decoder_layers = decoder;
  return network;
}

inline VisionTransformer small_vit(std::int64_t layers) {
  VisionTransformer network;
  network.stack = small_stack(layers);
  network.stack.vocabulary = 1;
  network.stack.causal = false;
  network.height = network.width = 64;
  network.class_token = false;  // 16 patches
  return network;
}

}  // namespace trainyard::testing
